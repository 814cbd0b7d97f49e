// The switch that is on, and those that were evaluated, in a file that all processes of a test map
// into memory when they start, before their other libraries load. Its layout: switch_memory.ts.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

volatile int32_t* on = nullptr;
uint8_t* evaluated = nullptr;
size_t n_switches = 0;

__attribute__((constructor)) void map_switches() {
  const char* path = getenv("FORGE_SWITCHES");
  const int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0) return;
  const auto bytes = static_cast<size_t>(status.st_size);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return;
  on = static_cast<int32_t*>(memory);
  evaluated = static_cast<uint8_t*>(memory) + sizeof(int32_t);
  n_switches = bytes - sizeof(int32_t);
}

}  // namespace

extern "C" {

// True if a switch is on; keeps that it was evaluated.
bool forge_evaluate_switch(int32_t id) {
  if (!on) return false;
  evaluated[id] = 1;
  return *on == id;
}

// Switches a mutant on, in all processes; -1 for none.
void forge_switch_on(int32_t id) { *on = id; }

size_t forge_switch_count() { return n_switches; }

// Copies the bytes of the switches, and clears them.
void forge_take_switches(uint8_t* bytes) {
  std::memcpy(bytes, evaluated, n_switches);
  std::memset(evaluated, 0, n_switches);
}

}  // extern "C"
