#if !defined(_WIN32)

#include "mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "error.h"

namespace forge {

// A signal handler reads these on any thread at any time, so they are never freed; those of
// unmapped files are reused.
struct GuardedRange {
  std::atomic<uintptr_t> begin{0};  // 0 while unused
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> is_lost{false};  // the file's pages have been replaced by zeros
  GuardedRange* next = nullptr;
};

namespace {

std::atomic<GuardedRange*> guarded_ranges{nullptr};
struct sigaction previous_action;

GuardedRange* range_of(uintptr_t address) {
  for (GuardedRange* range = guarded_ranges.load(); range; range = range->next) {
    const uintptr_t begin = range->begin.load();
    if (begin != 0 && begin <= address && address < range->end.load()) return range;
  }
  return nullptr;
}

// Passes a signal for other addresses to the previous handler. The default action is taken when the
// instruction faults again.
void pass_on(int signal, siginfo_t* info, void* context) {
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler == SIG_DFL || previous_action.sa_handler == SIG_IGN) {
    sigaction(signal, &previous_action, nullptr);
  } else {
    previous_action.sa_handler(signal);
  }
}

// Maps zeros over a file that can no longer be read, and returns to the instruction that read it. A
// jump out of the handler would skip the destructors of the reader.
void handle_bus_error(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  GuardedRange* range = range_of(reinterpret_cast<uintptr_t>(info->si_addr));
  if (!range) return pass_on(signal, info, context);
  range->is_lost = true;
  const uintptr_t begin = range->begin.load();
  const void* zeros = mmap(reinterpret_cast<void*>(begin), range->end.load() - begin, PROT_READ,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  errno = saved_errno;
  if (zeros == MAP_FAILED) pass_on(signal, info, context);
}

std::mutex& ranges_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

GuardedRange* guard(uintptr_t begin, uintptr_t end) {
  const std::lock_guard lock(ranges_mutex());
  GuardedRange* range = guarded_ranges.load();
  if (!range) {
    struct sigaction action = {};
    action.sa_sigaction = handle_bus_error;
    // Uses the alternate stack of a thread if it has one, as the handlers of Rust and V8 expect.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous_action);
  }
  while (range && range->begin.load() != 0) range = range->next;
  if (!range) {
    range = new GuardedRange;
    range->next = guarded_ranges.load();
    guarded_ranges = range;
  }
  range->is_lost = false;
  range->end = end;
  range->begin = begin;
  return range;
}

void unguard(GuardedRange* range) {
  const std::lock_guard lock(ranges_mutex());
  range->begin = 0;
}

int64_t modification_time(const struct stat& status) {
#if defined(__APPLE__)
  const timespec time = status.st_mtimespec;
#else
  const timespec time = status.st_mtim;
#endif
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(FORGE_IO, "cannot open ", path, ": ", std::strerror(errno));
  struct stat status = {};
  if (fstat(file, &status) != 0) {
    const int code = errno;
    close(file);
    fail(FORGE_IO, "cannot stat ", path, ": ", std::strerror(code));
  }
  if (!S_ISREG(status.st_mode) || status.st_size == 0) {
    close(file);
    fail(FORGE_IO, path, " is ", S_ISREG(status.st_mode) ? "empty" : "not a regular file");
  }
  bytes_ = static_cast<uint64_t>(status.st_size);
  modified_ = modification_time(status);
  // Shared, so that other readers of the pages, such as a GPU driver, need not copy them.
  void* address = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) {
    const int code = errno;
    close(file);
    fail(FORGE_IO, "cannot map ", path, ": ", std::strerror(code));
  }
  file_ = file;
  data_ = static_cast<const uint8_t*>(address);
  const auto begin = reinterpret_cast<uintptr_t>(address);
  range_ = guard(begin, begin + bytes_);
  // The whole file is about to be read: start the disk now rather than page by page.
  madvise(address, bytes_, MADV_WILLNEED);
}

MappedFile::~MappedFile() {
  unguard(range_);
  munmap(const_cast<uint8_t*>(data_), bytes_);
  close(file_);
}

void MappedFile::check() const {
  // The open file keeps its device and inode: only its size and time can change.
  struct stat status = {};
  const bool is_same = fstat(file_, &status) == 0 &&
                       static_cast<uint64_t>(status.st_size) == bytes_ &&
                       modification_time(status) == modified_;
  if (!is_same) {
    fail(FORGE_IO, path_, " was written to while it was in use",
         "; load the model again, and replace a model file by renaming the new one over it");
  }
  if (range_->is_lost) fail(FORGE_IO, "a page of ", path_, " could not be read from its disk");
}

void drop_pages(std::span<const uint8_t> mapped) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto data = reinterpret_cast<uintptr_t>(mapped.data());
  const uintptr_t begin = (data + page - 1) / page * page;
  const uintptr_t end = (data + mapped.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void read_ahead(std::span<const uint8_t> mapped) {
  // Linux reads no more than this ahead for one call.
  constexpr uintptr_t kPiece = 128 << 10;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto data = reinterpret_cast<uintptr_t>(mapped.data());
  const uintptr_t end = data + mapped.size();
  for (uintptr_t at = data / page * page; at < end; at += kPiece) {
    madvise(reinterpret_cast<void*>(at), std::min(kPiece, end - at), MADV_WILLNEED);
  }
}

}  // namespace forge

#endif
