// mxkern/kernels/quantize/generic.cuh: quantization of schemes that no kernel was written for, by
// the numerics alone: a thread for each block, an element at a time.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/quantize/octet.cuh"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern::kernels {

// The other kernels know these elements, and these scales in blocks of this length.
template <class S>
inline constexpr bool has_own_kernels = S::has_tensor_scale ||
                                        (S::block == 32 && S::ScaleFormat::is_power_of_two &&
                                         (is_ocp_float<typename S::Format> ||
                                          S::Format::is_integer));

// Lines of elements, one for each line of codes. Steps count elements; `index` is logical.
struct GenericLines {
  const void* x;
  std::int64_t batch, lines, elements;
  std::int64_t batch_step, line_step, element_step;
  std::int64_t index_line_step, index_element_step;
  OctetOptions options;
  bool square;
};

struct GenericCodes {
  std::uint8_t* codes;
  std::int64_t code_row_bytes;
  std::uint8_t* scales;
  ScaleIndex scale_index;
};

struct GenericOutput {
  void* out;
  std::int64_t batch_stride, row_stride;
};

inline constexpr int generic_threads = 128;

// A block of a line, or a square of as many lines.
template <class S, class T, Rounding R>
struct GenericBlock {
  static_assert(!S::has_tensor_scale);
  using Format = typename S::Format;

  const GenericLines& p;
  std::int64_t batch, line, last_line, block;
  BlockScale scale;

  // Finds the block of work item `unit`. The items also count the lines and blocks that scales are
  // padded to.
  __device__ GenericBlock(const GenericLines& lines, std::int64_t unit, std::int64_t all_lines,
                          std::int64_t all_blocks)
      : p(lines) {
    const std::int64_t group = p.square ? S::block : 1, groups = ceil_div(all_lines, group);
    block = unit % all_blocks;
    line = unit / all_blocks % groups * group;
    batch = unit / all_blocks / groups;
    last_line = lower_of(line + group, all_lines);
    std::uint32_t amax = 0;
    for (std::int64_t i = line; i < last_line; ++i) {
      for (int k = 0; k < S::block; ++k) {
        amax = max(amax, bits_of(value(i, k)) & float32::magnitude_mask);
      }
    }
    scale = block_scale<S>(amax, p.options.rule, {});
  }

  __device__ std::int64_t element(int k) const { return block * S::block + k; }
  __device__ bool exists(std::int64_t of_line, int k) const {
    return of_line < p.lines && element(k) < p.elements;
  }

  // Returns an element as float32, or zero beyond the end of the tensor.
  __device__ float value(std::int64_t of_line, int k) const {
    if (!exists(of_line, k)) return 0.0f;
    return to_float(static_cast<const T*>(
        p.x)[batch * p.batch_step + of_line * p.line_step + element(k) * p.element_step]);
  }

  __device__ std::uint32_t code(std::int64_t of_line, int k) const {
    if (!exists(of_line, k)) return 0;
    if (scale.byte == S::ScaleFormat::nan_byte) return Format::poison_code;
    const float scaled = __fmul_rn(value(of_line, k), scale.multiplier);
    if constexpr (R == Rounding::nearest) {
      return encode_lanes<Format>(scaled);
    } else {
      const PhiloxKeys& keys = p.options.keys;
      const std::int64_t index = batch * p.lines * p.elements + of_line * p.index_line_step +
                                 element(k) * p.index_element_step;
      return encode_stochastic_lanes<Format>(
          scaled, philox_word(keys.key0[0] | std::uint64_t{keys.key1[0]} << 32,
                              p.options.offset.get(), static_cast<std::uint64_t>(index)));
    }
  }
};

template <class S, class T, Rounding R>
__global__ void __launch_bounds__(generic_threads)
    quantize_generic_kernel(const __grid_constant__ GenericLines p,
                            const __grid_constant__ GenericCodes out) {
  constexpr int bits = S::Format::bits;
  wait_for_kernels_ahead();
  let_dependents_start();
  const ScaleIndex& index = out.scale_index;
  const bool swizzled = index.layout == ScaleLayout::swizzled;
  const std::int64_t lines = swizzled ? round_up(p.lines, ScaleIndex::tile_rows) : p.lines;
  const std::int64_t blocks =
      swizzled ? round_up(index.blocks, ScaleIndex::tile_blocks) : index.blocks;
  const std::int64_t units = p.batch * ceil_div(lines, p.square ? S::block : 1) * blocks;
  const std::int64_t step = std::int64_t{gridDim.x} * generic_threads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * generic_threads + threadIdx.x; i < units;
       i += step) {
    const GenericBlock<S, T, R> own(p, i, lines, blocks);
    for (std::int64_t line = own.line; line < own.last_line; ++line) {
      const bool pads = line >= p.lines || own.block >= index.blocks;
      out.scales[own.batch * index.size() + index.offset(line, own.block)] =
          pads ? std::uint8_t{0} : own.scale.byte;
      if (pads) continue;
      std::uint8_t* codes = out.codes + (own.batch * p.lines + line) * out.code_row_bytes;
      for (int octet = 0; octet < S::block / 8; ++octet) {
        std::uint32_t code[8];
        for (int k = 0; k < 8; ++k) code[k] = own.code(line, octet * 8 + k);
        const Octet packed = pack_octet<typename S::Format>(code);
        const std::int64_t first = own.block * S::block_bytes + octet * bits;
        for (int k = 0; k < bits && first + k < out.code_row_bytes; ++k) {
          codes[first + k] = static_cast<std::uint8_t>(packed >> (8 * k));
        }
      }
    }
  }
}

// Writes what the elements are after quantization and dequantization. `out` may be x: the scale of
// a block is known before any of its elements is written.
template <class S, class T, Rounding R>
__global__ void __launch_bounds__(generic_threads)
    fake_quantize_generic_kernel(const __grid_constant__ GenericLines p,
                                 const __grid_constant__ GenericOutput out) {
  wait_for_kernels_ahead();
  let_dependents_start();
  const std::int64_t blocks = ceil_div(p.elements, S::block);
  const std::int64_t units = p.batch * ceil_div(p.lines, p.square ? S::block : 1) * blocks;
  const std::int64_t step = std::int64_t{gridDim.x} * generic_threads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * generic_threads + threadIdx.x; i < units;
       i += step) {
    const GenericBlock<S, T, R> own(p, i, p.lines, blocks);
    const float scale = S::ScaleFormat::decode(own.scale.byte);
    for (std::int64_t line = own.line; line < own.last_line; ++line) {
      for (int k = 0; k < S::block; ++k) {
        if (!own.exists(line, k)) continue;
        const float value = decode_lanes<typename S::Format>(own.code(line, k));
        static_cast<T*>(
            out.out)[own.batch * out.batch_stride + line * out.row_stride + own.element(k)] =
            from_float<T>(element_value<S>(value, scale, 1.0f));
      }
    }
  }
}

}  // namespace mxkern::kernels
