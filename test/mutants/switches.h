// Included first by every compilation of a tree with switches (drawn.ts).

#pragma once

// Defined by switch_memory.cpp; null in processes without it.
extern "C" __attribute__((weak, visibility("default"))) bool forge_evaluate_switch(int id);

// True if a switch is on. Constants keep their values.
constexpr bool forge_switch_is_on(int id) {
  return __builtin_is_constant_evaluated() ? false
                                           : forge_evaluate_switch && forge_evaluate_switch(id);
}
