#include "json_text.h"

#include "quant/weight_type.h"

namespace forge {

std::string json_string(std::string_view text) {
  static const char* hex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += hex[byte >> 4];
      out += hex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string json_list(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + json_string(text);
  return "[" + list + "]";
}

void JsonObject::add_raw(std::string_view key, std::string_view json) {
  if (!members_.empty()) members_ += ", ";
  members_ += json_string(key);
  members_ += ": ";
  members_ += json;
}

std::string weight_type_names_json() {
  std::vector<std::string> names;
  for (uint32_t id = 0; id < 256; ++id) {
    if (const WeightTypeInfo* type = find_weight_type(id)) names.emplace_back(type->name);
  }
  return json_list(names);
}

}  // namespace forge
