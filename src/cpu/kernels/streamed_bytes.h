// cpu/kernels/streamed_bytes.h: writing past the caches what is more than they hold.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/runtime/cache.h"
#include "cpu/kernels/lanes_memory.h"

namespace mxkern::cpu {
namespace {

// Writes a line of the cache, of which no memory is read before.
[[gnu::always_inline]] inline void stream_line(void* target, const std::uint8_t* source) {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(target), load_vector<__m512i>(source));
#elif defined(__AVX__)
  for (int i = 0; i < cache_line / 32; ++i) {
    _mm256_stream_si256(static_cast<__m256i*>(target) + i, load_vector<__m256i>(source + i * 32));
  }
#elif defined(__SSE2__)
  for (int i = 0; i < cache_line / 16; ++i) {
    _mm_stream_si128(static_cast<__m128i*>(target) + i, load_vector<__m128i>(source + i * 16));
  }
#else
  std::memcpy(target, source, cache_line);
#endif
}

// Behind all of a task: other threads see these writes only then.
[[gnu::always_inline]] inline void end_streams() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// Bytes that follow one another. They are put together here, at most Most at a time, and written in
// whole lines of the cache; what is none, at either end, is written as ever.
template <int Most>
class StreamedBytes {
 public:
  void begin(void* target) {
    target_ = static_cast<std::uint8_t*>(target);
    kept_ = 0;
    const auto offset = static_cast<int>(reinterpret_cast<std::uintptr_t>(target) % cache_line);
    head_ = offset == 0 ? 0 : cache_line - offset;
  }

  // Where the next ones are to be put.
  std::uint8_t* place() { return bytes_ + cache_line; }

  // So many of them are there.
  void write(std::int64_t count) {
    const std::uint8_t* from = place() - kept_;
    std::int64_t left = kept_ + count;
    if (head_ > 0) {
      const std::int64_t head = lower_of<std::int64_t>(head_, left);
      copy_elements(target_, from, head);
      head_ -= static_cast<int>(head);
      from += head;
      target_ += head;
      left -= head;
    }
    for (; left >= cache_line; left -= cache_line, from += cache_line, target_ += cache_line) {
      stream_line(target_, from);
    }
    kept_ = static_cast<int>(left);
    std::memmove(place() - kept_, from, static_cast<std::size_t>(left));
  }

  // Behind the last ones.
  void end() { copy_elements(target_, place() - kept_, static_cast<std::int64_t>(kept_)); }

 private:
  alignas(cache_line) std::uint8_t bytes_[cache_line + Most];
  std::uint8_t* target_;
  int kept_;  // bytes ahead of the place that are not written yet
  int head_;  // bytes until the first whole line
};

}  // namespace
}  // namespace mxkern::cpu
