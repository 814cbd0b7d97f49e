// A stand-in for NVRTC, for machines without it: compiles nothing, and passes the name of a kernel
// to the stand-in for the driver, which runs the emulated kernel.

#include <cstddef>
#include <cstring>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct Program {
  std::string source;
  std::string name;
  std::string image;
  std::string log;
};

constexpr int kOk = 0;
constexpr int kCompilation = 6;
constexpr int kNameExpressionNotValid = 10;

void copy(const std::string& text, char* to) { std::memcpy(to, text.c_str(), text.size() + 1); }

}  // namespace

EXPORT int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return kOk;
}

EXPORT const char* nvrtcGetErrorString(int result) {
  return result == kOk            ? "NVRTC_SUCCESS"
         : result == kCompilation ? "NVRTC_ERROR_COMPILATION"
                                  : "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID";
}

EXPORT int nvrtcGetNumSupportedArchs(int* count) {
  *count = 2;
  return kOk;
}

EXPORT int nvrtcGetSupportedArchs(int* list) {
  list[0] = 80;
  list[1] = 90;
  return kOk;
}

EXPORT int nvrtcCreateProgram(Program** program, const char* source, const char*, int,
                              const char* const*, const char* const*) {
  *program = new Program{source, "", "", ""};
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

EXPORT int nvrtcCompileProgram(Program* program, int, const char* const*) {
  if (program->source.find("INSTANCE(" + program->name + ")") == std::string::npos) {
    program->log = "the source has no INSTANCE(" + program->name + ")";
    return kCompilation;
  }
  program->image = "forge emulated kernel " + program->name;
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

EXPORT int nvrtcGetCUBINSize(Program* program, size_t* bytes) {
  *bytes = program->image.size() + 1;
  return kOk;
}

EXPORT int nvrtcGetCUBIN(Program* program, char* image) {
  copy(program->image, image);
  return kOk;
}

EXPORT int nvrtcGetPTXSize(Program* program, size_t* bytes) {
  *bytes = program->image.size() + 1;
  return kOk;
}

EXPORT int nvrtcGetPTX(Program* program, char* image) {
  copy(program->image, image);
  return kOk;
}
