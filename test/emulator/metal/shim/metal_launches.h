#pragma once

// The results of translate.ts in place of Metal's declarations, and the registration of kernels.

#define METAL_TYPE(...) __VA_ARGS__
#define METAL_JOIN_(a, b) a##b
#define METAL_JOIN(a, b) METAL_JOIN_(a, b)

#define THREADGROUP_MEMORY(Type, name, dimensions)                \
  static const char name##_declaration = 0;                       \
  typedef METAL_TYPE Type name##_memory METAL_TYPE dimensions;    \
  name##_memory& name = *static_cast<name##_memory*>(             \
      emulator::threadgroup_array(&name##_declaration, sizeof(name##_memory)))
#define THREADGROUP_MEMORY_END emulator::end_threadgroup_arrays()

#define INSTANTIATE(...)
#define INSTANCE(...)                                                                \
  static const emulator::MetalRegistration METAL_JOIN(registration_, __COUNTER__)(   \
      #__VA_ARGS__, __VA_ARGS__);
// A kernel that is not a template.
#define PLAIN_KERNEL(name) INSTANCE(name)

// The threadgroup memory of a launch, at index 0.
template <class T>
struct LaunchedMemory {
  T* memory;
  operator T*() const { return memory; }
};

// The position of a thread: as uint, uint2 or uint3.
#define METAL_POSITION(name, value)                                                         \
  template <class T>                                                                        \
  struct name : T {                                                                         \
    explicit name(T own) : T(own) {}                                                        \
    static name of(const emulator::Position& at) { return name(vector_of<T>(value(at))); }  \
  };                                                                                        \
  template <>                                                                               \
  struct name<uint> {                                                                       \
    operator uint() const { return own; }                                                   \
    static name of(const emulator::Position& at) { return {value(at).x}; }                  \
    uint own;                                                                               \
  };

template <class T>
T vector_of(emulator::Dim3 position);
template <>
inline uint2 vector_of<uint2>(emulator::Dim3 position) {
  return {position.x, position.y};
}
template <>
inline uint3 vector_of<uint3>(emulator::Dim3 position) {
  return {position.x, position.y, position.z};
}

inline emulator::Dim3 group_position(const emulator::Position& at) { return at.block; }
inline uint linear_thread(const emulator::Position& at) {
  return at.thread.x + at.block_size.x * (at.thread.y + at.block_size.y * at.thread.z);
}
inline emulator::Dim3 thread_number(const emulator::Position& at) { return {linear_thread(at)}; }
inline emulator::Dim3 lane_number(const emulator::Position& at) { return {linear_thread(at) % 32}; }
inline emulator::Dim3 simdgroup_number(const emulator::Position& at) {
  return {linear_thread(at) / 32};
}
inline emulator::Dim3 simdgroup_count(const emulator::Position& at) {
  return {(at.block_size.x * at.block_size.y * at.block_size.z + 31) / 32};
}
METAL_POSITION(threadgroup_position_in_grid, group_position)
METAL_POSITION(thread_index_in_threadgroup, thread_number)
METAL_POSITION(thread_index_in_simdgroup, lane_number)
METAL_POSITION(simdgroup_index_in_threadgroup, simdgroup_number)
METAL_POSITION(simdgroups_per_threadgroup, simdgroup_count)

namespace emulator {

// Makes a parameter of type P: from a buffer if kIsBuffer, else from the thread's position.
template <class P>
struct MetalParameter {
  static constexpr bool kIsBuffer = false, kIsMemory = false;
  static P make(void*) { return P::of(position()); }
};
template <class T>
struct MetalParameter<T*> {
  static constexpr bool kIsBuffer = true, kIsMemory = false;
  static MetalArgument argument() { return {0, alignof(T), !std::is_const<T>::value}; }
  static T* make(void* buffer) { return static_cast<T*>(buffer); }
};
template <class T>
struct MetalParameter<const T&> {
  static constexpr bool kIsBuffer = true, kIsMemory = false;
  static MetalArgument argument() { return {sizeof(T), alignof(T), false}; }
  static const T& make(void* buffer) { return *static_cast<const T*>(buffer); }
};
template <class T>
struct MetalParameter<LaunchedMemory<T>> {
  static constexpr bool kIsBuffer = false, kIsMemory = true;
  static LaunchedMemory<T> make(void*) { return {static_cast<T*>(dynamic_shared())}; }
};

// Appends the argument of a parameter that is a buffer.
template <class P, bool is_buffer = MetalParameter<P>::kIsBuffer>
struct AddArgument {
  static void to(MetalArgument*& end) { *end++ = MetalParameter<P>::argument(); }
};
template <class P>
struct AddArgument<P, false> {
  static void to(MetalArgument*&) {}
};

struct MetalRegistration {
  template <class... Params>
  MetalRegistration(const char* name, void (*function)(Params...)) {
    bool takes_memory = false;
    const bool memory[] = {MetalParameter<Params>::kIsMemory...};
    for (const bool is_memory : memory) takes_memory |= is_memory;
    MetalArgument arguments[sizeof...(Params)];
    MetalArgument* end = arguments;
    const int added[] = {(AddArgument<Params>::to(end), 0)...};
    static_cast<void>(added);
    register_metal_kernel({name, reinterpret_cast<Function>(function), arguments,
                           static_cast<size_t>(end - arguments), takes_memory,
                           [](Function function, void* const* buffers) {
                             call(reinterpret_cast<void (*)(Params...)>(function), buffers,
                                  std::index_sequence_for<Params...>{});
                           }});
  }

 private:
  // Parameters that are buffers come first, so that a buffer's index is its parameter's.
  template <class... Params, size_t... i>
  static void call(void (*function)(Params...), void* const* buffers, std::index_sequence<i...>) {
    function(MetalParameter<Params>::make(MetalParameter<Params>::kIsBuffer ? buffers[i]
                                                                            : nullptr)...);
  }
};

}  // namespace emulator
