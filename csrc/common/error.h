#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#include "../forge.h"

namespace forge {

// A failure. The border converts it to a status, and stores its text on the handle.
class Error : public std::runtime_error {
 public:
  Error(forge_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  forge_status status() const { return status_; }

 private:
  forge_status status_;
};

// Throws an Error whose text is the concatenation of the arguments.
template <class... Parts>
[[noreturn]] void fail(forge_status status, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(status, text.str());
}

// Throws FORGE_INVALID_ARGUMENT unless `condition` holds.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) fail(FORGE_INVALID_ARGUMENT, parts...);
}

}  // namespace forge
