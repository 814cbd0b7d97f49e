#pragma once

// Where the device's time goes, for people who tune kernels: FORGE_CUDA_PROFILE=FILE.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "memory.h"

namespace forge::cuda {

// Times each entry of the steps that run, by events around it, and writes the sums into a file, one
// JSON object a line, when it ends. Steps are not replayed as graphs meanwhile.
class Profile {
 public:
  // Null unless the variable is set.
  static std::unique_ptr<Profile> create(std::shared_ptr<DeviceState> state);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // Forgets what a run that did not end has left.
  void begin_run() { names_.clear(); }
  // Around the work of an entry, as it is put on the device's stream.
  void begin();
  void end(const std::string& name);
  // After the stream has been waited for: adds the times of a run of so many tokens.
  void finish_run(uint32_t tokens);

 private:
  struct Span {
    Event begin = nullptr, end = nullptr;
  };
  struct Sum {
    uint64_t launches = 0;
    double microseconds = 0;
  };

  Profile(std::shared_ptr<DeviceState> state, std::string path)
      : state_(std::move(state)), path_(std::move(path)) {}
  void write() const;

  std::shared_ptr<DeviceState> state_;
  std::string path_;
  std::vector<Span> spans_;        // used again in every run
  std::vector<std::string> names_;  // of the run's entries so far
  std::map<uint32_t, uint64_t> runs_;  // by their tokens
  std::map<std::pair<uint32_t, std::string>, Sum> sums_;
};

}  // namespace forge::cuda
