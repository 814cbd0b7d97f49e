#pragma once

// True if two types are equivalent in a compiled call: numbers of the same size and sign, pointers
// to equivalent types, structs of the same size, whose alignment the first may exceed. Tags of
// opaque structs may differ, and enums match their integers.

#include <cstddef>
#include <type_traits>

namespace header_test {

template <class A, class B>
constexpr bool same_shape();

template <class F>
struct Signature;
template <class Result, class... Parameters>
struct Signature<Result (*)(Parameters...)> {
  template <class Other>
  struct Compare : std::false_type {};
  template <class OtherResult, class... Others>
  struct Compare<OtherResult (*)(Others...)> {
    static constexpr bool compare() {
      if constexpr (sizeof...(Others) != sizeof...(Parameters)) {
        return false;
      } else {
        return same_shape<Result, OtherResult>() && (same_shape<Parameters, Others>() && ...);
      }
    }
    static constexpr bool value = compare();
  };
};

template <class T>
constexpr bool is_number = std::is_integral_v<T> || std::is_enum_v<T>;

template <class T>
constexpr bool is_complete = requires { sizeof(T); };

template <class A, class B>
constexpr bool same_shape() {
  using X = std::remove_cv_t<A>;
  using Y = std::remove_cv_t<B>;
  if constexpr (std::is_pointer_v<X> && std::is_pointer_v<Y>) {
    using P = std::remove_pointer_t<X>;
    using Q = std::remove_pointer_t<Y>;
    if constexpr (std::is_function_v<P> || std::is_function_v<Q>) {
      return Signature<X>::template Compare<Y>::value;
    } else if constexpr (std::is_void_v<P> || std::is_void_v<Q>) {
      // At least one of them points to an unknown type, or is a handle.
      return (std::is_void_v<P> || std::is_class_v<std::remove_cv_t<P>>) &&
             (std::is_void_v<Q> || std::is_class_v<std::remove_cv_t<Q>>);
    } else {
      return same_shape<P, Q>();
    }
  } else if constexpr (std::is_class_v<X> && std::is_class_v<Y>) {
    // Opaque on either side: only the library accesses the contents.
    if constexpr (is_complete<X> && is_complete<Y>) {
      return sizeof(X) == sizeof(Y) && alignof(X) >= alignof(Y);
    } else {
      return true;
    }
  } else if constexpr (std::is_enum_v<X> || std::is_enum_v<Y>) {
    // The sign of NVIDIA's enums is not fixed.
    return is_number<X> && is_number<Y> && sizeof(X) == sizeof(Y);
  } else if constexpr (is_number<X> && is_number<Y>) {
    return sizeof(X) == sizeof(Y) && std::is_signed_v<X> == std::is_signed_v<Y>;
  } else {
    return std::is_same_v<X, Y>;
  }
}

}  // namespace header_test
