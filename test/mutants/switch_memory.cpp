// Maps the file of switches (switch_memory.ts) when a process starts, before its libraries load.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

extern "C" {

unsigned char* forge_switches = nullptr;
static size_t n_bytes = 0;

unsigned char* forge_switch_memory() { return forge_switches; }
size_t forge_switch_bytes() { return n_bytes; }

}  // extern "C"

__attribute__((constructor)) static void map_switches() {
  const char* path = getenv("FORGE_SWITCHES");
  const int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  struct stat status;
  if (file < 0 || fstat(file, &status) != 0) return;
  void* memory = mmap(nullptr, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return;
  n_bytes = status.st_size;
  forge_switches = static_cast<unsigned char*>(memory);
}
