// cuda/any/narrow.cu: launches of the kernels for codes of at most 8 bits.
#include "cuda/any/narrow.h"

#include <algorithm>

#include "cuda/any/launch.h"
#include "mxkern/kernels/any/narrow_decode.cuh"
#include "mxkern/kernels/any/narrow_quantize.cuh"

namespace mxkern::cuda {
namespace {

// Rows of whole octets on 16 bytes, all of them the same distance apart.
bool has_octets(const AnyBuffer& x) {
  return !x.is_float64 && x.shape.columns % 8 == 0 && starts_on_16_any(x) &&
         (x.shape.batch == 1 || x.batch_stride == x.shape.rows * x.row_stride) &&
         x.shape.batch * x.shape.rows < std::int64_t{1} << 31;
}

dim3 resident_grid(const char* function, std::int64_t blocks, int resident) {
  return grid_of(std::min(blocks, std::int64_t{processor_count(function)} * resident));
}

template <class T, NarrowKind kind, bool fake>
void launch_quantize(const char* function, const kernels::NarrowParameters& p, Stream stream) {
  constexpr int threads = kernels::narrow_threads;
  const std::int64_t lanes = p.octets_of_block.size;
  if (p.any.group == 1 && lanes <= 32 && (lanes & (lanes - 1)) == 0) {
    return launch(function, kernels::narrow_rows_kernel<T, kind, fake>,
                  resident_grid(function, ceil_div(p.octets, threads), 4), threads, 0, stream, p);
  }
  if (p.any.group * lanes <= 256) {
    return launch(function, kernels::narrow_tiles_kernel<T, kind, fake, 32>,
                  resident_grid(function, ceil_div(p.tiles, threads / 32), 4), threads, 0, stream,
                  p);
  }
  launch(function, kernels::narrow_tiles_kernel<T, kind, fake, threads>,
         resident_grid(function, p.tiles, 4), threads, 0, stream, p);
}

template <class T, NarrowKind kind>
void launch_quantize(const char* function, bool fake, const kernels::NarrowParameters& p,
                     Stream stream) {
  return fake ? launch_quantize<T, kind, true>(function, p, stream)
              : launch_quantize<T, kind, false>(function, p, stream);
}

template <class T>
void launch_decode(const char* function, const kernels::NarrowDecodeParameters& p, Stream stream) {
  const int bits = p.any.scheme.element.stored_bits();
  const auto kernel = bits == 8   ? kernels::narrow_decode_kernel<T, 8>
                      : bits == 6 ? kernels::narrow_decode_kernel<T, 6>
                                  : kernels::narrow_decode_kernel<T, 4>;
  constexpr int threads = kernels::narrow_threads;
  launch(function, kernel, resident_grid(function, ceil_div(p.octets, threads), 5), threads, 0,
         stream, p);
}

}  // namespace

bool quantize_narrow(const char* function, const AnyBuffer& x, const AnyBuffer* values,
                     const kernels::AnyQuantizeParameters<std::uint32_t>& any,
                     const AnyOptions& options, Stream stream) {
  const AnyScheme& scheme = any.scheme;
  const bool is_row = scheme.block_columns == 0;
  const std::int64_t block = is_row ? x.shape.columns : scheme.block_columns;
  if (!NarrowEncoder::takes(scheme.element, options.rounding) || options.scale.mse ||
      options.scales != nullptr || options.block_amaxes != nullptr || scheme.is_whole_tensor() ||
      block % 8 != 0 || !has_octets(x) || (values != nullptr && !has_octets(*values)) ||
      (any.codes != nullptr && !starts_on(any.codes, 8))) {
    return false;
  }
  const std::int64_t across = ceil_div(x.shape.columns, block);
  const std::int64_t down = ceil_div(x.shape.rows, any.group), lanes = block / 8;
  const std::int64_t octets = x.shape.batch * x.shape.rows * across * lanes;
  // Tiles count the octets of a whole one.
  constexpr std::int64_t limit = std::int64_t{1} << 30;
  if (octets >= limit || any.group >= limit || any.group * lanes >= limit) return false;
  kernels::NarrowParameters p = {};
  p.any = any;
  p.element = NarrowEncoder::of(scheme.element);
  const AnyFormat scale = scheme.scale.magnitude();
  p.is_nearest_scale = scheme.scale.kind == AnyScaleKind::magnitude &&
                       NearestEncoder<std::uint32_t>::takes(scale, {});
  if (p.is_nearest_scale) p.scale = NearestEncoder<std::uint32_t>::of(scale, {});
  p.bits = scheme.element.stored_bits();
  p.scale_bits = scheme.scale.stored_bits();
  p.has_table = p.scale_bits == 8 && scheme.tensor_scales != TensorScales::row;
  p.row_bytes = scheme.code_row_bytes(x.shape.columns);
  p.octets = static_cast<std::uint32_t>(octets);
  p.octets_there = static_cast<std::uint32_t>(x.shape.columns / 8);
  p.octets_of_row = kernels::NarrowExtent(across * lanes);
  p.octets_of_block = kernels::NarrowExtent(lanes);
  p.rows = kernels::NarrowExtent(x.shape.rows);
  p.across = kernels::NarrowExtent(across);
  p.down = kernels::NarrowExtent(down);
  p.tiles = static_cast<std::uint32_t>(x.shape.batch * down * across);
  visit(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (p.element.kind == NarrowKind::fixed) {
      launch_quantize<T, NarrowKind::fixed>(function, values != nullptr, p, stream);
    } else {
      launch_quantize<T, NarrowKind::floating>(function, values != nullptr, p, stream);
    }
  });
  return true;
}

bool dequantize_narrow(const char* function, const AnyBuffer& out,
                       const kernels::AnyDecodeParameters<std::uint32_t>& any, Stream stream) {
  const AnyScheme& scheme = any.scheme;
  const int bits = scheme.element.stored_bits();
  const Shape& shape = any.shape;
  const std::int64_t octets = shape.batch * shape.rows * (shape.columns / 8);
  if ((bits != 8 && bits != 6 && bits != 4) || any.block % 8 != 0 || !has_octets(out) ||
      !starts_on(any.codes, 8) || octets >= std::int64_t{1} << 30) {
    return false;
  }
  kernels::NarrowDecodeParameters p = {};
  p.any = any;
  p.scale_bits = scheme.scale.stored_bits();
  p.row_bytes = scheme.code_row_bytes(shape.columns);
  p.across = ceil_div(shape.columns, any.block);
  p.octets = static_cast<std::uint32_t>(octets);
  p.octets_of_row = kernels::NarrowExtent(shape.columns / 8);
  p.octets_of_block = kernels::NarrowExtent(any.block / 8);
  p.rows = kernels::NarrowExtent(shape.rows);
  p.block_rows = kernels::NarrowExtent(std::max<std::int64_t>(scheme.block_rows, 1));
  p.plain_scales = scheme.block_rows == 1 && any.layout == ScaleLayout::row_major;
  visit(out.dtype, [&](auto tag) {
    launch_decode<typename decltype(tag)::type>(function, p, stream);
  });
  return true;
}

}  // namespace mxkern::cuda
