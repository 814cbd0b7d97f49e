// Calls the functions of a DLL for a program on Linux that talks to it through pipes, so that Wine
// can run the library without Deno. Little-endian:
//
//   request:  name length u32, name, count of arguments u32, arguments
//   argument: bytes u64, or 2^64-1 for a number; the bytes or the number u64. A null buffer is 0 as
//             a number.
//   response: result u64, and for each buffer a byte that is 1 if it changed, with its bytes then
//
// The calling convention of Windows lets a caller pass more arguments than a function has.
#define NOMINMAX
#include <fcntl.h>
#include <io.h>
#include <windows.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr size_t kMostArguments = 16;
constexpr uint64_t kNumber = UINT64_MAX;

bool read_exactly(void* to, size_t bytes) {
  static const HANDLE input = GetStdHandle(STD_INPUT_HANDLE);
  auto* at = static_cast<uint8_t*>(to);
  for (DWORD count = 0; bytes > 0; at += count, bytes -= count) {
    const auto most = static_cast<DWORD>(std::min<size_t>(bytes, 1 << 16));
    if (!ReadFile(input, at, most, &count, nullptr) || count == 0) return false;
  }
  return true;
}

template <class T>
T read_value() {
  T value = 0;
  if (!read_exactly(&value, sizeof value)) ExitProcess(0);
  return value;
}

// One argument, with the contents of a buffer before and after the call.
struct Argument {
  uint64_t number = 0;
  bool is_buffer = false;
  std::vector<uint64_t> before, data;  // aligned for any type
  size_t bytes = 0;
};

Argument read_argument() {
  Argument argument;
  const auto bytes = read_value<uint64_t>();
  argument.is_buffer = bytes != kNumber;
  if (!argument.is_buffer) {
    argument.number = read_value<uint64_t>();
    return argument;
  }
  argument.bytes = bytes;
  argument.data.resize(bytes / 8 + 1);
  if (!read_exactly(argument.data.data(), bytes)) ExitProcess(1);
  argument.before = argument.data;
  return argument;
}

using Function = uint64_t (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                              uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                              uint64_t, uint64_t);

uint64_t call(Function function, std::vector<Argument>& arguments) {
  uint64_t a[kMostArguments] = {};
  for (size_t i = 0; i < arguments.size(); ++i) {
    Argument& each = arguments[i];
    a[i] = each.is_buffer ? reinterpret_cast<uint64_t>(each.data.data()) : each.number;
  }
  return function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12],
                  a[13], a[14], a[15]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const HMODULE library = LoadLibraryA(argv[1]);
  if (!library) return std::fprintf(stderr, "cannot load %s: %lu\n", argv[1], GetLastError()), 1;
  _setmode(_fileno(stdout), _O_BINARY);
  for (;;) {
    std::string name(read_value<uint32_t>(), '\0');
    if (!read_exactly(name.data(), name.size())) return 1;
    std::vector<Argument> arguments(read_value<uint32_t>());
    if (arguments.size() > kMostArguments) return 1;
    for (Argument& argument : arguments) argument = read_argument();
    const FARPROC address = GetProcAddress(library, name.c_str());
    if (!address) return std::fprintf(stderr, "no function %s\n", name.c_str()), 1;
    const uint64_t result = call(reinterpret_cast<Function>(address), arguments);
    std::fwrite(&result, sizeof result, 1, stdout);
    for (const Argument& each : arguments) {
      if (!each.is_buffer) continue;
      const uint8_t is_changed = each.data != each.before;
      std::fwrite(&is_changed, 1, 1, stdout);
      if (is_changed) std::fwrite(each.data.data(), 1, each.bytes, stdout);
    }
    std::fflush(stdout);
  }
}
