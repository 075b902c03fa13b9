// Loops unrolled while compiling, so that arrays of accumulators live in registers.
//
// The files of this folder are compiled once for each instruction set, with its flags. Everything
// in them is a template over that set's own types (or is always inlined): an ordinary inline
// function would be one symbol for all sets, and the linker might keep the copy that this CPU
// cannot run.
#pragma once
#include <type_traits>
#include <utility>

#define COX_INLINE inline __attribute__((always_inline))
#define COX_INLINE_LAMBDA __attribute__((always_inline))

namespace coxswain::kernels::vector {

template <class Body, int... I>
COX_INLINE void unroll_indices(Body& body, std::integer_sequence<int, I...>) {
  (body(std::integral_constant<int, I>{}), ...);
}

// body(integral_constant<int, 0>) ... body(integral_constant<int, Count - 1>)
template <int Count, class Body>
COX_INLINE void unroll(Body body) {
  unroll_indices(body, std::make_integer_sequence<int, Count>{});
}

}  // namespace coxswain::kernels::vector
