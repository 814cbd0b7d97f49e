#include <set>
#include <string_view>

#include "../gpu/kernel_sources.h"
#include "kernels.h"

namespace forge::metal {

namespace {

constexpr std::string_view kInclude = "#include \"";
constexpr std::string_view kOnce = "#pragma once";

// Metal compiles a text, so includes must be expanded.
void append(const std::string& name, std::set<std::string>& included, std::string& text) {
  if (!included.insert(name).second) return;
  std::string_view rest = kernel_source(name.c_str()).text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.starts_with(kInclude)) {
      const std::string_view path = line.substr(kInclude.size());
      append(std::string(path.substr(0, path.find('"'))), included, text);
    } else if (line != kOnce) {
      text.append(line).append("\n");
    }
  }
}

}  // namespace

std::string source_text(const std::string& file) {
  std::set<std::string> included;
  std::string text;
  append(file + ".metal", included, text);
  return text;
}

}  // namespace forge::metal
