// Included first by every compilation of a tree with switches (drawn.ts).

#pragma once

// Defined by switch_memory.cpp; null in processes without it.
extern "C" __attribute__((weak, visibility("default"))) unsigned char* forge_switches;

// True if a switch is on; keeps that it was evaluated. The layout of the memory: switch_memory.ts.
inline bool forge_evaluate_switch(int id) {
  if (&forge_switches == nullptr || forge_switches == nullptr) return false;
  forge_switches[sizeof(int) + static_cast<unsigned>(id)] = 1;
  return *reinterpret_cast<volatile int*>(forge_switches) == id;
}

// Constants keep their values.
constexpr bool forge_switch_is_on(int id) {
  return __builtin_is_constant_evaluated() ? false : forge_evaluate_switch(id);
}
