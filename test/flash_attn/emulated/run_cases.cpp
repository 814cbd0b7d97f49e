// Reads cases, one per line, and prints each result as one line of JSON.
#include <iostream>
#include <string>

#include "attention_case.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    flash_attn_test::AttentionCase attention(flash_attn_test::parse_case(line));
    attention.report(attention.run());
  }
  return 0;
}
