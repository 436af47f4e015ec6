// plan/blackwell.h: which products the block-scaled kernels of Blackwell take, and what they
// need; pure, for plans. The kernels are compiled and have never been executed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "mxkern/core/math.h"
#include "mxkern/tensor/planned_operand.h"

namespace mxkern::cuda {

// Architectures whose multiplication takes block scales.
enum class Blackwell : std::uint8_t { none, sm100, sm120 };

// By compute capability: code for sm_100a runs on 10.0 only, code for sm_120a on 12.0 only.
constexpr Blackwell blackwell_of(int major, int minor) {
  if (minor != 0) return Blackwell::none;
  return major == 10 ? Blackwell::sm100 : major == 12 ? Blackwell::sm120 : Blackwell::none;
}

// Whether this build has the kernels of an architecture.
constexpr bool has_blackwell_kernels([[maybe_unused]] Blackwell architecture) {
#if defined(MXKERN_HAS_SM100)
  if (architecture == Blackwell::sm100) return true;
#endif
#if defined(MXKERN_HAS_SM120)
  if (architecture == Blackwell::sm120) return true;
#endif
  return false;
}

// Whether tensor cores know a scheme's elements and scales, as they know NVFP4's.
constexpr bool is_mx_float(Scheme scheme) {
  return visit(scheme, []<class S>(S) {
    return is_ocp_float<typename S::Format> && S::ScaleFormat::is_power_of_two && S::block == 32;
  });
}

// The pairs of schemes that are multiplied, left and right: MXFP8 with MXFP8, MXFP6 and MXFP4, and
// 4 bits with 4 bits where the scales are of one kind.
constexpr bool is_blackwell_pair(Scheme left, Scheme right) {
  const int bits = facts_of(left).bits;
  if (bits == 8) return is_mx_float(left) && is_mx_float(right);
  return bits == 4 && left == right && (is_mx_float(left) || facts_of(left).has_tensor_scale);
}

// Codes of 4 and 6 bits are spread to bytes on their way into shared memory if the other side
// has 8. The copy then takes 128 elements at a time, from multiples of 32 bytes.
constexpr bool spreads_codes(Scheme left, Scheme right) {
  return facts_of(left).bits == 8 && facts_of(right).bits != 8;
}

// K as the kernels see it: packed rows end with zero codes up to a whole block.
constexpr std::int64_t blackwell_depth(Scheme scheme, std::int64_t columns) {
  const SchemeFacts facts = facts_of(scheme);
  return facts.bits == 8 ? columns : round_up(columns, facts.block);
}

// What K has to be a multiple of.
constexpr int blackwell_depth_step(Scheme left, Scheme right) {
  return spreads_codes(left, right) ? 128 : 128 / facts_of(left).bits;
}

// Scales in the layout that the kernels read.
constexpr std::int64_t swizzled_bytes(const PlannedOperand& q) {
  return BlockScaled::sizes(q.scheme, q.shape, ScaleLayout::swizzled).scales;
}

// One batched launch serves matrices that pair up; one right operand for a batch is multiplied
// matrix by matrix.
constexpr bool is_one_launch(const PlannedOperand& a, const PlannedOperand& b) {
  return a.shape.batch == b.shape.batch;
}

// Why the kernels do not take a product, in a clause for people; null: they take it. Looks at
// schemes, extents, strides and the alignment of addresses, and at nothing behind them.
constexpr const char* why_not_blackwell(const PlannedOperand& a, const PlannedOperand& b,
                                        const PlannedTensor& out) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  constexpr std::int64_t small = 128 * 1024;
  const auto size = static_cast<std::int64_t>(size_of(out.dtype));
  if (!is_blackwell_pair(a.scheme, b.scheme)) return "the hardware does not pair these schemes";
  if (out.dtype == DType::float16) return "outputs are bfloat16 or float32";
  if (a.shape.size() == 0 || b.shape.size() == 0) return "there is nothing to multiply";
  if (blackwell_depth(b.scheme, b.shape.columns) % blackwell_depth_step(a.scheme, b.scheme) != 0) {
    return "K is not a multiple of what the copies take at a time";
  }
  if (a.shape.rows > most || b.shape.rows > most || a.shape.columns > most ||
      a.shape.batch > most || swizzled_bytes(a) > most || swizzled_bytes(b) > most) {
    return "extents or scales pass 2^31";
  }
  const bool spreads = spreads_codes(a.scheme, b.scheme);
  const bool codes_are_aligned = a.alignment >= 16 && b.alignment >= (spreads ? 32 : 16);
  if (!codes_are_aligned) return "codes do not start on 16 bytes, or 32 for 4 and 6 bits beside 8";
  const auto scales_fit = [&](const PlannedOperand& q) {
    return q.scale_layout == ScaleLayout::row_major || q.scale_alignment >= 16;
  };
  if (!scales_fit(a) || !scales_fit(b)) return "swizzled scales do not start on 16 bytes";
  if (!starts_on_16(out) || out.shape.columns * size % 16 != 0) {
    return "rows of the output do not start on 16 bytes";
  }
  // Drivers up to CUDA 13.1 describe small tensors with gaps wrongly.
  if (!is_dense(out) && out.shape.size() * size < small) return "the output is small and has gaps";
  return nullptr;
}

// Where the parts of the working memory begin.
struct BlackwellWorkspace {
  std::size_t factor, bias, left_scales, right_scales, bytes;
};

constexpr BlackwellWorkspace blackwell_workspace(const PlannedOperand& a, const PlannedOperand& b) {
  constexpr std::int64_t alignment = 256;
  const auto after = [](std::size_t begin, std::int64_t bytes) {
    return begin + static_cast<std::size_t>(round_up(bytes, alignment));
  };
  const auto converted = [](const PlannedOperand& q) {
    return q.scale_layout == ScaleLayout::swizzled ? 0 : swizzled_bytes(q);
  };
  BlackwellWorkspace parts{};
  parts.bias = after(parts.factor, sizeof(float));
  parts.left_scales = after(parts.bias, b.shape.rows * std::int64_t{sizeof(float)});
  parts.right_scales = after(parts.left_scales, converted(a));
  parts.bytes = after(parts.right_scales, converted(b));
  return parts;
}

}  // namespace mxkern::cuda
