// cpu/runtime/parallel.h: a range of work over the cores of this machine.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

namespace mxkern::cpu {

namespace detail {
using RangeFunction = void (*)(void* context, std::int64_t begin, std::int64_t end);
void parallel_for(std::int64_t count, std::int64_t grain, int most_at_once, RangeFunction function,
                  void* context);
}  // namespace detail

// Calls work(begin, end) for disjoint ranges that cover [0, count), each of at least `grain` (but
// the last), from num_threads() threads or `most_at_once`. Runs on the calling thread alone where
// count <= grain, or where another call has the workers. The split never changes results: work must
// not depend on it. Work runs with the settings of a FloatEnvironment. An exception from work
// reaches the caller.
template <class Work>
void parallel_for(std::int64_t count, std::int64_t grain, Work&& work,
                  int most_at_once = std::numeric_limits<int>::max()) {
  using Plain = std::remove_reference_t<Work>;
  detail::parallel_for(
      count, grain, most_at_once,
      [](void* context, std::int64_t begin, std::int64_t end) {
        (*static_cast<Plain*>(context))(begin, end);
      },
      const_cast<void*>(static_cast<const void*>(&work)));
}

}  // namespace mxkern::cpu
