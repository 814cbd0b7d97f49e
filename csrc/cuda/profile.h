#pragma once

// Times of launches, for tuning kernels: FORGE_CUDA_PROFILE=FILE.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "memory.h"

namespace forge::cuda {

// Times each entry of all steps by events around it, and writes the sums to a file when destroyed,
// one JSON object per line. Disables graphs.
class Profile {
 public:
  // Null unless the variable is set.
  static std::unique_ptr<Profile> create(std::shared_ptr<DeviceState> state);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // Discards the entries of a failed run.
  void begin_run() { names_.clear(); }
  // Called before and after an entry is enqueued.
  void begin();
  void end(const std::string& name);
  // Adds the times of a run of `tokens` tokens. The stream must be idle.
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
  std::vector<Span> spans_;        // reused in every run
  std::vector<std::string> names_;  // of the entries of the current run
  std::map<uint32_t, uint64_t> runs_;  // by number of tokens
  std::map<std::pair<uint32_t, std::string>, Sum> sums_;
};

}  // namespace forge::cuda
