// cpu/kernels/swiglu_lines.h: SwiGLU of a line of gates and of what they let through.
// Only files in cpu/instances/ may include it.
#pragma once

#include <utility>

#include "cpu/kernel_table.h"
#include "cpu/kernels/lanes_memory.h"
#include "mxkern/numerics/swiglu.h"

namespace mxkern::cpu {
namespace {

// Every other lane of two registers, from the first one or the second one on.
template <int first, std::size_t... i>
[[gnu::always_inline]] inline FloatLanes every_other(FloatLanes a, FloatLanes b,
                                                     std::index_sequence<i...>) {
  return __builtin_shufflevector(a, b, (2 * static_cast<int>(i) + first)...);
}

template <class T, bool interleaved>
[[gnu::always_inline]] inline void swiglu_register(const SwigluTask& task, const T* gates,
                                                   const T* others, T* out) {
  FloatLanes gate = load_lanes(gates), up;
  if constexpr (interleaved) {
    constexpr auto lanes = std::make_index_sequence<lane_count>{};
    const FloatLanes first = gate, second = load_lanes(gates + lane_count);
    gate = every_other<0>(first, second, lanes);
    up = every_other<1>(first, second, lanes);
  } else {
    up = load_lanes(others);
  }
  store_lanes(out, with_one_nan(swiglu(gate, up, task.alpha, task.limit, task.offset)));
}

template <class T, bool interleaved>
void swiglu_line(const SwigluTask& task) {
  constexpr int step = interleaved ? 2 : 1;
  const T* const gates = static_cast<const T*>(task.gates);
  const T* const others = static_cast<const T*>(task.others);
  T* const out = static_cast<T*>(task.out);
  std::int64_t i = 0;
  for (; i + lane_count <= task.count; i += lane_count) {
    swiglu_register<T, interleaved>(task, gates + i * step, others + i, out + i);
  }
  const std::int64_t rest = task.count - i;
  if (rest == 0) return;
  T last_gates[2 * lane_count] = {}, last_others[lane_count] = {}, last[lane_count];
  copy_elements(last_gates, gates + i * step, rest * step);
  if (!interleaved) copy_elements(last_others, others + i, rest);
  swiglu_register<T, interleaved>(task, last_gates, last_others, last);
  copy_elements(out + i, last, rest);
}

}  // namespace
}  // namespace mxkern::cpu
