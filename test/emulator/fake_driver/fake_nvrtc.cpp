// A stand-in for NVRTC, for machines without it: compiles nothing, and passes the architecture and
// the name of a kernel to the stand-in for the driver, which runs the emulated kernel. As NVRTC, it
// makes code for an architecture that it knows, or PTX, and finds includes among the headers.
//
// FORGE_FAKE_NVRTC_STEP=FILE: sources of step_kernel, which the library writes, are added to it,
// each after a line "//! " with its name. FORGE_FAKE_NVRTC_VERSION: the version, by default 13.0.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct Program {
  std::string source;
  std::string file;  // that the source is said to be
  std::map<std::string, std::string> headers;
  std::string name;
  std::string target;  // sm_80, sm_90a, or compute_80 for PTX
  std::string log;

  std::string image() const {
    std::string text = "forge emulated kernel " + target + " " + name;
    for (const std::string& operation : operations()) text += "\n" + operation;
    return text;
  }

  // The kernels that step_kernel calls, in the order of its cases.
  std::vector<std::string> operations() const {
    std::map<int, std::string> numbered;
    const std::string begin = "DEVICE void run_", call = "Operation<&", end = ">::call(a)";
    for (size_t at = 0; (at = source.find(begin, at)) != std::string::npos; at += begin.size()) {
      const size_t name_at = source.find(call, at) + call.size();
      numbered[std::atoi(source.c_str() + at + begin.size())] =
          source.substr(name_at, source.find(end, name_at) - name_at);
    }
    std::vector<std::string> names;
    for (const auto& [number, name] : numbered) names.push_back(name);
    return names;
  }
};

constexpr int kOk = 0;
constexpr int kInvalidInput = 3;
constexpr int kInvalidOption = 5;
constexpr int kCompilation = 6;
constexpr int kNameExpressionNotValid = 10;

// Not sorted, since NVRTC promises no order; without those before FORGE_FAKE_NVRTC_OLDEST.
std::vector<int> architectures() {
  std::vector<int> known = {90, 80};
  const char* const oldest = std::getenv("FORGE_FAKE_NVRTC_OLDEST");
  std::erase_if(known, [&](int each) { return oldest && each < std::atoi(oldest); });
  return known;
}

void copy(const std::string& text, char* to) { std::memcpy(to, text.c_str(), text.size() + 1); }

// Returns the architecture that the options name, or "" if NVRTC would reject them.
std::string target_of(int n_options, const char* const* options) {
  const std::string name = "--gpu-architecture=";
  std::string target;
  for (int i = 0; i < n_options; ++i) {
    const std::string option = options[i];
    if (option.compare(0, name.size(), name) != 0) continue;
    if (!target.empty()) return "";
    for (const int known : architectures()) {
      for (const char* kind : {"sm_", "compute_"}) {
        if (option == name + kind + std::to_string(known)) target = option.substr(name.size());
      }
    }
    if (option == name + "sm_90a") target = "sm_90a";
    if (target.empty()) return "";
  }
  return target;
}

// Returns what is wrong with the files that a program includes, or "".
std::string include_problem(const Program& program) {
  const std::string include = "#include \"";
  for (size_t at = 0; (at = program.source.find(include, at)) != std::string::npos;) {
    at += include.size();
    const std::string name = program.source.substr(at, program.source.find('"', at) - at);
    if (name == program.file) return "#include file \"" + name + "\" includes itself";
    if (program.headers.count(name) == 0) return "cannot open source file \"" + name + "\"";
  }
  return "";
}

}  // namespace

EXPORT int nvrtcVersion(int* major, int* minor) {
  const char* const version = std::getenv("FORGE_FAKE_NVRTC_VERSION");
  *major = 13;
  *minor = 0;
  if (version) std::sscanf(version, "%d.%d", major, minor);
  return kOk;
}

EXPORT const char* nvrtcGetErrorString(int result) {
  return result == kOk            ? "NVRTC_SUCCESS"
         : result == kInvalidInput ? "NVRTC_ERROR_INVALID_INPUT"
         : result == kInvalidOption ? "NVRTC_ERROR_INVALID_OPTION"
         : result == kCompilation ? "NVRTC_ERROR_COMPILATION"
                                  : "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID";
}

EXPORT int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(architectures().size());
  return kOk;
}

EXPORT int nvrtcGetSupportedArchs(int* list) {
  std::ranges::copy(architectures(), list);
  return kOk;
}

EXPORT int nvrtcCreateProgram(Program** program, const char* source, const char* file,
                              int n_headers, const char* const* texts, const char* const* names) {
  *program = new Program{source, file, {}, "", "", ""};
  for (int i = 0; i < n_headers; ++i) (*program)->headers.emplace(names[i], texts[i]);
  return kOk;
}

EXPORT int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return kOk;
}

EXPORT int nvrtcAddNameExpression(Program* program, const char* expression) {
  program->name = expression;
  return kOk;
}

// Adds a source that calls operations to the file that the environment names.
void keep_source(const Program& program) {
  const char* path = std::getenv("FORGE_FAKE_NVRTC_STEP");
  std::FILE* const file = path && *path ? std::fopen(path, "a") : nullptr;
  if (!file) return;
  std::fprintf(file, "//! %s\n%s", program.file.c_str(), program.source.c_str());
  std::fclose(file);
}

EXPORT int nvrtcCompileProgram(Program* program, int n_options, const char* const* options) {
  program->target = target_of(n_options, options);
  if (program->target.empty()) return kInvalidOption;
  program->log = include_problem(*program);
  if (!program->log.empty()) return kCompilation;
  const std::vector<std::string> operations = program->operations();
  if (!operations.empty()) keep_source(*program);
  const auto has_instance = [](const std::string& text, const std::string& name) {
    return text.find("INSTANCE(" + name + ")") != std::string::npos;
  };
  for (const std::string& name : operations) {
    if (std::ranges::none_of(program->headers,
                             [&](const auto& each) { return has_instance(each.second, name); })) {
      program->log = "no file has INSTANCE(" + name + ")";
      return kCompilation;
    }
  }
  if (operations.empty() && !has_instance(program->source, program->name)) {
    program->log = "the source has no INSTANCE(" + program->name + ")";
    return kCompilation;
  }
  if (program->name.rfind("wgmma_", 0) == 0 && program->target != "sm_90a") {
    program->log = "wgmma is not supported on " + program->target;
    return kCompilation;
  }
  return kOk;
}

EXPORT int nvrtcGetLoweredName(Program* program, const char* expression, const char** symbol) {
  if (program->name != expression) return kNameExpressionNotValid;
  *symbol = program->name.c_str();
  return kOk;
}

EXPORT int nvrtcGetProgramLogSize(Program* program, size_t* bytes) {
  *bytes = program->log.size() + 1;
  return kOk;
}

EXPORT int nvrtcGetProgramLog(Program* program, char* text) {
  copy(program->log, text);
  return kOk;
}

// There is code for a GPU only if one was named, not if the architecture is a virtual one.
EXPORT int nvrtcGetCUBINSize(Program* program, size_t* bytes) {
  *bytes = program->target[0] == 's' ? program->image().size() + 1 : 0;
  return kOk;
}

EXPORT int nvrtcGetCUBIN(Program* program, char* image) {
  if (program->target[0] != 's') return kInvalidInput;
  copy(program->image(), image);
  return kOk;
}

EXPORT int nvrtcGetPTXSize(Program* program, size_t* bytes) {
  *bytes = program->image().size() + 1;
  return kOk;
}

EXPORT int nvrtcGetPTX(Program* program, char* image) {
  copy(program->image(), image);
  return kOk;
}
