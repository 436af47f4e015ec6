// cuda/any/narrow.cu: launches of the kernels for codes of at most 8 bits.
#include "cuda/any/narrow.h"

#include <algorithm>

#include "cuda/any/launch.h"
#include "mxkern/kernels/any/narrow_decode.cuh"
#include "mxkern/kernels/any/narrow_quantize.cuh"

namespace mxkern::cuda {
namespace {

constexpr int threads = kernels::narrow_threads, resident = 4;

// Rows of whole octets on 16 bytes, all of them the same distance apart.
bool has_octets(const AnyBuffer& x) {
  return !x.is_float64 && x.shape.columns % 8 == 0 && starts_on_16_any(x) &&
         x.row_stride % 8 == 0 &&
         (x.shape.batch == 1 || x.batch_stride == x.shape.rows * x.row_stride) &&
         x.shape.batch * x.shape.rows * std::max(x.row_stride, x.shape.columns) / 8 <
             std::int64_t{1} << 32;
}

// Whether a thread can have 16 of its elements: 32 bytes, as of float32 eight are.
bool has_pairs(const AnyBuffer& x, std::int64_t block) {
  return x.dtype != DType::float32 && x.shape.columns % 16 == 0 && x.row_stride % 16 == 0 &&
         block % 16 == 0;
}

dim3 staying(const char* function, std::int64_t blocks) {
  return grid_of(std::min(blocks, std::int64_t{processor_count(function)} * resident));
}

// Whether the lanes of a block fit into a warp.
bool lies_in_warps(const kernels::NarrowParameters& p) {
  const std::uint32_t lanes = p.parts_of_block.size;
  return p.any.group == 1 && lanes <= 32 && (lanes & (lanes - 1)) == 0;
}

template <class T, NarrowKind kind, bool fake, int octets>
void launch_quantize(const char* function, const kernels::NarrowParameters& p, Stream stream) {
  if (lies_in_warps(p)) {
    return launch(function, kernels::narrow_rows_kernel<T, kind, fake, octets>,
                  staying(function, ceil_div(p.parts, threads)), threads, 0, stream, p);
  }
  if (p.any.group * p.parts_of_block.size <= 256) {
    return launch(function, kernels::narrow_tiles_kernel<T, kind, fake, octets, 32>,
                  staying(function, ceil_div(p.tiles, threads / 32)), threads, 0, stream, p);
  }
  launch(function, kernels::narrow_tiles_kernel<T, kind, fake, octets, threads>,
         staying(function, p.tiles), threads, 0, stream, p);
}

template <class T, int octets>
void launch_quantize(const char* function, bool fake, const kernels::NarrowParameters& p,
                     Stream stream) {
  constexpr NarrowKind fixed = NarrowKind::fixed, floating = NarrowKind::floating;
  if (p.element.kind == fixed) {
    return fake ? launch_quantize<T, fixed, true, octets>(function, p, stream)
                : launch_quantize<T, fixed, false, octets>(function, p, stream);
  }
  return fake ? launch_quantize<T, floating, true, octets>(function, p, stream)
              : launch_quantize<T, floating, false, octets>(function, p, stream);
}

template <class T, int octets>
void launch_decode(const char* function, const kernels::NarrowDecodeParameters& p, Stream stream) {
  const int bits = p.any.scheme.element.stored_bits();
  const auto kernel = bits == 8   ? kernels::narrow_decode_kernel<T, 8, octets>
                      : bits == 6 ? kernels::narrow_decode_kernel<T, 6, octets>
                                  : kernels::narrow_decode_kernel<T, 4, octets>;
  launch(function, kernel, staying(function, ceil_div(p.parts, threads)), threads, 0, stream, p);
}

// Calls visitor(TypeTag<T>{}, std::integral_constant<int, octets>{}) for the parts of a thread.
template <class Visitor>
void visit_parts(DType dtype, bool pairs, Visitor&& visitor) {
  visit(dtype, [&](auto tag) {
    if constexpr (sizeof(typename decltype(tag)::type) == 2) {
      if (pairs) return visitor(tag, std::integral_constant<int, 2>{});
    }
    visitor(tag, std::integral_constant<int, 1>{});
  });
}

std::uint32_t parts_of(std::int64_t elements, bool pairs) {
  return static_cast<std::uint32_t>(elements / (pairs ? 16 : 8));
}

}  // namespace

bool quantize_narrow(const char* function, const AnyBuffer& x, const AnyBuffer* values,
                     const kernels::AnyQuantizeParameters<std::uint32_t>& any,
                     const AnyOptions& options, Stream stream) {
  const AnyScheme& scheme = any.scheme;
  if (!NarrowEncoder::takes(scheme.element, options.rounding) || options.scale.mse ||
      options.scales != nullptr || options.block_amaxes != nullptr || scheme.is_whole_tensor() ||
      any.block % 8 != 0 || !has_octets(x) || (values != nullptr && !has_octets(*values)) ||
      (any.codes != nullptr && !starts_on(any.codes, 16))) {
    return false;
  }
  const std::int64_t across = ceil_div(x.shape.columns, any.block);
  const std::int64_t down = ceil_div(x.shape.rows, any.group);
  const std::int64_t padded = across * any.block;
  // Tiles count the parts of a whole one.
  constexpr std::int64_t limit = std::int64_t{1} << 30;
  if (x.shape.batch * x.shape.rows * padded / 8 >= limit || any.group >= limit ||
      any.group * any.block / 8 >= limit) {
    return false;
  }
  const bool pairs =
      has_pairs(x, any.block) && (values == nullptr || has_pairs(*values, any.block));
  kernels::NarrowParameters p = {};
  p.any = any;
  p.element = NarrowEncoder::of(scheme.element);
  const AnyFormat scale = scheme.scale.magnitude();
  p.is_power_scale = scheme.scale.kind == AnyScaleKind::power;
  p.is_nearest_scale = scheme.scale.kind == AnyScaleKind::magnitude &&
                       NearestEncoder<std::uint32_t>::takes(scale, {});
  if (p.is_nearest_scale) p.scale = NearestEncoder<std::uint32_t>::of(scale, {});
  p.power_bias = scheme.scale.bias() - E8M0::bias;
  p.most_power = static_cast<std::int32_t>(scheme.scale.max_code());
  p.nan_scale = scheme.scale.nan_code();
  p.bits = scheme.element.stored_bits();
  p.scale_bits = scheme.scale.stored_bits();
  p.has_table = p.scale_bits == 8 && scheme.tensor_scales != TensorScales::row;
  p.parts_of_row = kernels::NarrowExtent(parts_of(padded, pairs));
  p.parts_there = parts_of(x.shape.columns, pairs);
  p.parts_of_block = kernels::NarrowExtent(parts_of(any.block, pairs));
  p.rows = kernels::NarrowExtent(x.shape.rows);
  p.across = kernels::NarrowExtent(across);
  p.down = kernels::NarrowExtent(down);
  p.parts = static_cast<std::uint32_t>(x.shape.batch * x.shape.rows) * p.parts_of_row.size;
  p.tiles = static_cast<std::uint32_t>(x.shape.batch * down * across);
  p.beside = p.parts_there % 2 == 0 && p.parts_of_row.size % 2 == 0 &&
             (lies_in_warps(p) || p.parts_of_block.size % 2 == 0);
  p.x_stride = parts_of(x.row_stride, pairs);
  if (values != nullptr) p.value_stride = parts_of(values->row_stride, pairs);
  p.code_stride = p.bits == 8 ? p.parts_there : p.parts_of_row.size;
  p.scale_index = scheme.scale_index(x.shape, any.layout);
  p.scales_of_matrix = p.scale_index.size();
  visit_parts(x.dtype, pairs, [&](auto tag, auto octets) {
    launch_quantize<typename decltype(tag)::type, octets()>(function, values != nullptr, p, stream);
  });
  return true;
}

bool dequantize_narrow(const char* function, const AnyBuffer& out,
                       const kernels::AnyDecodeParameters<std::uint32_t>& any, Stream stream) {
  const AnyScheme& scheme = any.scheme;
  const int bits = scheme.element.stored_bits();
  const Shape& shape = any.shape;
  if ((bits != 8 && bits != 6 && bits != 4) || scheme.is_whole_tensor() || any.block % 8 != 0 ||
      !has_octets(out) || !starts_on(any.codes, 16) || shape.size() / 8 >= std::int64_t{1} << 30) {
    return false;
  }
  const std::int64_t across = ceil_div(shape.columns, any.block);
  const bool pairs = has_pairs(out, any.block);
  kernels::NarrowDecodeParameters p = {};
  p.any = any;
  p.scale_bits = scheme.scale.stored_bits();
  p.parts_of_row = kernels::NarrowExtent(parts_of(shape.columns, pairs));
  p.parts_of_block = kernels::NarrowExtent(parts_of(any.block, pairs));
  p.parts = static_cast<std::uint32_t>(shape.batch * shape.rows) * p.parts_of_row.size;
  p.code_stride = bits == 8 ? p.parts_of_row.size : parts_of(across * any.block, pairs);
  p.beside = p.parts_of_row.size % 2 == 0;
  p.out_stride = parts_of(out.row_stride, pairs);
  p.scale_stride = static_cast<std::uint32_t>(across);
  p.rows = kernels::NarrowExtent(shape.rows);
  p.block_rows = kernels::NarrowExtent(scheme.block_rows);
  p.plain_scales = scheme.block_rows == 1 && any.layout == ScaleLayout::row_major;
  p.scale_index = scheme.scale_index(shape, any.layout);
  p.scales_of_matrix = p.scale_index.size();
  visit_parts(out.dtype, pairs, [&](auto tag, auto octets) {
    launch_decode<typename decltype(tag)::type, octets()>(function, p, stream);
  });
  return true;
}

}  // namespace mxkern::cuda
