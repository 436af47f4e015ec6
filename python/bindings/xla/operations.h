// bindings/xla/operations.h: the operations as programs of XLA call them. Each reads its numbers in
// the order of python/mxkern/jax/operations.py.
#pragma once

#include "gemm_workspace.h"
#include "kept_plans.h"
#include "xla/call.h"

namespace mxkern::bindings::xla_operations {

// Which of a tensor's amax and its tensor scale a call gives, if any.
inline void read_given(XlaCall& call, QuantizeOptions& options) {
  switch (call.number_up_to(2)) {
    case 1: options.amax = call.scalar(call.argument()); break;
    case 2: options.tensor_scale = call.scalar(call.argument()); break;
    default: break;
  }
}

// The offset, where it is an array: as halves, the lower one first, at an address for 64 bits.
inline const std::uint64_t* read_offset(XlaCall& call) {
  if (!call.flag()) return nullptr;
  return reinterpret_cast<const std::uint64_t*>(call.bytes(call.argument(), sizeof(std::uint64_t)));
}

// Where an amax that is found lies from one kernel to the next: the last result of a direction.
inline void read_found_amax(XlaCall& call, Scheme scheme, QuantizeOptions& options) {
  if (!facts_of(scheme).has_tensor_scale) return;
  if (options.amax != nullptr || options.tensor_scale != nullptr) return;
  options.found_amax = call.scalar(call.result());
}

// along columns, scheme, scale layout, options, what is given, whether an offset is; x, what is
// given, the offset -> codes, scales and, of nvfp4, the tensor scale, and an amax that is found
inline void quantize(XlaCall& call) {
  const bool along_columns = call.flag();
  const Scheme scheme = call.scheme();
  const ScaleLayout layout = call.one_of(all_scale_layouts);
  QuantizeOptions options = call.options();
  const Buffer x = call.plain(call.argument());
  read_given(call, options);
  options.offset_at = read_offset(call);
  const BlockScaled out =
      call.quantized_result(scheme, layout, along_columns ? x.shape.transposed() : x.shape);
  read_found_amax(call, scheme, options);
  call.end();
  if (along_columns) {
    quantize_columns(x, out, options, call.stream());
  } else {
    mxkern::quantize(x, out, options, call.stream());
  }
}

// scheme, scale layout, options and what is given of the rows, the same of the columns, whether an
// offset is given
inline void quantize_both(XlaCall& call) {
  const Scheme scheme = call.scheme();
  const ScaleLayout layout = call.one_of(all_scale_layouts);
  const Buffer x = call.plain(call.argument());
  QuantizeOptions row_options = call.options();
  read_given(call, row_options);
  QuantizeOptions column_options = call.options();
  read_given(call, column_options);
  row_options.offset_at = column_options.offset_at = read_offset(call);
  const BlockScaled rows = call.quantized_result(scheme, layout, x.shape);
  read_found_amax(call, scheme, row_options);
  const BlockScaled columns = call.quantized_result(scheme, layout, x.shape.transposed());
  read_found_amax(call, scheme, column_options);
  call.end();
  mxkern::quantize_both(x, rows, columns, row_options, column_options, call.stream());
}

// scheme, options, what is given, whether an offset is; x, what is given, the offset -> the same as
// x, and an amax that is found
inline void fake_quantize(XlaCall& call) {
  const Scheme scheme = call.scheme();
  QuantizeOptions options = call.options();
  const Buffer x = call.plain(call.argument());
  read_given(call, options);
  options.offset_at = read_offset(call);
  const Buffer out = call.plain(call.result());
  read_found_amax(call, scheme, options);
  call.end();
  mxkern::fake_quantize(x, scheme, out, options, call.stream());
}

// size, halves of the sign mask, whether along columns, or none of these; x -> amax
inline void tensor_amax(XlaCall& call) {
  AmaxOptions options;
  if (call.has_numbers()) {
    options.hadamard = call.hadamard();
    options.columns = call.flag();
  }
  const Buffer x = call.plain(call.argument());
  float* amax = call.scalar(call.result());
  call.end();
  mxkern::tensor_amax(x, amax, options, call.stream());
}

// the quantized operand -> a plain array
inline void dequantize(XlaCall& call) {
  const ffi::AnyBuffer result = call.result();
  const BlockScaled q = call.quantized_argument_of(result.element_count());
  const Buffer out = call.plain(result, q.shape);
  call.end();
  mxkern::dequantize(q, out, call.stream());
}

// size, halves of the sign mask, inverse; x -> the same
inline void random_hadamard(XlaCall& call) {
  const Hadamard hadamard = call.hadamard();
  const bool inverse = call.flag();
  const Buffer x = call.plain(call.argument());
  const Buffer out = call.plain(call.result());
  call.end();
  mxkern::random_hadamard(x, out, hadamard, inverse, call.stream());
}

// whether back to rows, batch, rows, blocks; scales -> scales
inline void move_scales(XlaCall& call) {
  const bool back = call.flag();
  const Shape shape = call.shape();
  const std::int64_t in_rows = shape.size();
  const std::int64_t in_tiles =
      shape.batch * ScaleIndex{shape.rows, shape.columns, ScaleLayout::swizzled}.size();
  const std::uint8_t* from = call.bytes(call.argument(), back ? in_tiles : in_rows);
  std::uint8_t* to = call.bytes(call.result(), back ? in_rows : in_tiles);
  call.end();
  (back ? unswizzle_scales : swizzle_scales)(from, to, shape.batch, shape.rows, shape.columns,
                                             call.device(), call.stream());
}

// form, the quantized operand -> data
inline void prepare_operand(XlaCall& call) {
  PreparedOperand out;
  out.form = call.one_of(all_prepared_forms);
  out.source = call.quantized_argument();
  const ffi::AnyBuffer data = call.result();
  call.end();
  out.data = data.untyped_data();
  out.bytes = data.size_bytes();
  mxkern::prepare_operand(out.source, out, call.stream());
}

// scheme, options, whether codes and scales are kept; x -> folded data, codes, scales
inline void quantize_prepared(XlaCall& call) {
  PreparedOperand out;
  out.form = PreparedForm::folded;
  const Scheme scheme = call.scheme();
  const QuantizeOptions options = call.options();
  const bool keeps_source = call.flag();
  const Buffer x = call.plain(call.argument());
  const ffi::AnyBuffer data = call.result();
  out.source = keeps_source
                   ? call.quantized_result(scheme, ScaleLayout::row_major, x.shape)
                   : BlockScaled{.scheme = scheme, .shape = x.shape, .device = call.device()};
  call.end();
  out.data = data.untyped_data();
  out.bytes = data.size_bytes();
  mxkern::prepare_operand(x, out, options, call.stream());
}

// left operand, right operand, whether there is a bias, precision, bits of alpha, whether there is
// memory to work in -> a plain array, the memory
inline void gemm(XlaCall& call) {
  const GemmOperand a = call.gemm_operand();
  const GemmRightOperand b = call.gemm_right_operand();
  Buffer bias;
  GemmOptions options;
  if (call.flag()) {
    bias = call.plain(call.argument());
    options.bias = &bias;
  }
  options.precision = call.one_of(all_gemm_precisions);
  options.alpha = float_of(static_cast<std::uint32_t>(call.number()));
  // A kernel of the program that is ahead of this call may be what writes b.
  options.right_is_complete = false;
  const Buffer out = call.plain(call.result());
  const Workspace workspace = call.workspace();
  call.end();
  if (call.on_cpu()) return mxkern::gemm(a, b, out, options);
  static thread_local KeptPlans plans;  // XLA calls from threads of its own
  mxkern::gemm(plans.plan(a, b, out, options), a, b, out, options, workspace, call.stream());
}

// whether columns belong to groups, left operand, right operand, groups, whether there are factors,
// and biases, precision, bits of alpha, whether there is memory to work in; the operands, ends,
// factors, biases -> a plain array, the memory
inline void grouped_gemm(XlaCall& call) {
  Groups groups = call.flag() ? Groups(ColumnGroups{}) : Groups(RowGroups{});
  const GemmOperand a = call.gemm_operand();
  const GemmRightOperand b = call.gemm_right_operand();
  groups.count = call.extent();
  groups.ends = call.ends(call.argument(), groups.count);
  GroupedGemmOptions options;
  if (call.flag()) options.factors = call.factors(call.argument(), groups.count);
  Buffer bias;
  if (call.flag()) {
    const ffi::AnyBuffer biases = call.argument();
    const auto count = static_cast<std::int64_t>(biases.element_count());
    bias = call.plain(biases, {groups.count, 1, groups.count == 0 ? 0 : count / groups.count});
    options.bias = &bias;
  }
  options.precision = call.one_of(all_gemm_precisions);
  options.alpha = float_of(static_cast<std::uint32_t>(call.number()));
  const Buffer out = call.plain(call.result());
  Workspace workspace = call.workspace();
  call.end();
  if (!call.on_cpu()) {
    return mxkern::grouped_gemm(a, b, groups, out, options, workspace, call.stream());
  }
  grouped_gemm_with_workspace(a, b, groups, out, options);
}

}  // namespace mxkern::bindings::xla_operations
