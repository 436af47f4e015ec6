// ops/prepare_operand.cc: checks the arguments of prepare_operand and picks the device.
#include "mxkern/prepare_operand.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "check/arguments.h"
#include "check/gemm.h"
#include "check/quantize.h"
#include "cpu/gemm/panels/panels.h"
#include "cpu/gemm/task.h"
#include "cuda/gemm/gemm.h"
#include "cuda/operands/prepare_operand.h"
#include "plan/core_rows.h"
#include "plan/decode/limits.h"
#include "mxkern/tensor/panel_layout.h"

namespace mxkern {
namespace {

constexpr const char* function = "prepare_operand";

void check_scheme(const char* caller, Scheme scheme) {
  check(is_listed(scheme, all_schemes), caller, ": scheme is number ", static_cast<int>(scheme),
        "; expected one of the schemes");
}

// The form, if products on the device read it, or else the source.
PreparedForm usable(PreparedForm wanted, Device device) {
  if (device.type == DeviceType::cpu) {
    const bool reads = wanted == PreparedForm::panels && cpu::reads_panels();
    return reads ? wanted : PreparedForm::source;
  }
  if constexpr (has_cuda) {
    if (device.type == DeviceType::cuda &&
        reads(wanted, cuda::gemm_capabilities(function, device))) {
      return wanted;
    }
  }
  return PreparedForm::source;
}

// Throws for a device without products of the form.
void check_usable(const PreparedOperand& out) {
  const BlockScaled& q = out.source;
  check_device(function, q.device);
  check<Unsupported>(usable(out.form, q.device) == out.form, function, ": form is ",
                     name_of(out.form), ", which products on ", q.device,
                     " do not read; ask usable_prepared_form, or use the form source");
}

// On the CPU.
void fill_panels(const PreparedOperand& out) {
  const BlockScaled& q = out.source;
  const cpu::GemmTask task = make_task(q, q, nullptr, Buffer{}, {});
  const PanelLayout layout(q.scheme, q.shape.rows, q.shape.columns);
  cpu::GemmMatrix matrix = task.right;
  for (std::int64_t i = 0; i < q.shape.batch; ++i) {
    cpu::fill_panels(matrix, static_cast<std::uint8_t*>(out.data) + i * layout.matrix_bytes);
    matrix.data += task.right_batch_bytes;
    matrix.scales += task.right_batch_scales;
  }
}

// What is written of an operand that is checked.
Occupied data_of(const PreparedOperand& out) {
  const Shape& shape = out.source.shape;
  return {"out", ".data", out.data, prepared_bytes(out.form, out.source.scheme, shape)};
}

}  // namespace

PreparedForm best_prepared_form(Scheme scheme, Device device) {
  constexpr const char* own = "best_prepared_form";
  check_scheme(own, scheme);
  check_device_type(own, device);
  if (device.type == DeviceType::cpu) return usable(PreparedForm::panels, device);
  if (cuda::fold_facts(scheme).can_fold &&
      usable(PreparedForm::folded, device) == PreparedForm::folded) {
    return PreparedForm::folded;
  }
  return usable(PreparedForm::expanded, device);
}

PreparedForm usable_prepared_form(PreparedForm wanted, Scheme scheme, Device device) {
  constexpr const char* own = "usable_prepared_form";
  check_scheme(own, scheme);
  check_form(own, "", wanted, scheme);
  check_device_type(own, device);
  return usable(wanted, device);
}

std::size_t prepared_bytes(PreparedForm form, Scheme scheme, const Shape& shape) {
  constexpr const char* own = "prepared_bytes";
  check_scheme(own, scheme);
  check_form(own, "", form, scheme);
  check_shape(own, "shape", shape);
  switch (form) {
    case PreparedForm::source: return 0;
    case PreparedForm::folded: return static_cast<std::size_t>(cuda::folded_layout(shape).bytes);
    case PreparedForm::expanded: {
      const BlockScaled q{.scheme = scheme, .shape = shape};
      return static_cast<std::size_t>(cuda::expanded_layout(q).bytes);
    }
    case PreparedForm::few_tokens:
      return static_cast<std::size_t>(cuda::reordered_bytes(scheme, shape));
    case PreparedForm::panels:
      return static_cast<std::size_t>(shape.batch *
                                      PanelLayout(scheme, shape.rows, shape.columns).matrix_bytes);
  }
  return 0;
}

void prepare_operand(const BlockScaled& q, const PreparedOperand& out, Stream stream) {
  check_block_scaled(function, "q", q);
  PreparedOperand target = out;
  target.source = q;
  check_prepared(function, "out", target);
  const Occupied data = data_of(target);
  for (const Occupied& part : OccupiedParts("q", q).part) check_apart(function, data, part);
  check_usable(target);
  if (target.form == PreparedForm::source) return;
  if (target.form == PreparedForm::panels) return fill_panels(target);
  if constexpr (has_cuda) cuda::prepare_operand(target, stream);
}

void prepare_operand(const Buffer& given, const PreparedOperand& out,
                     const QuantizeOptions& options, Stream stream) {
  check_buffer(function, "x", given);
  const Buffer x = with_strides(given);
  check_prepared(function, "out", out);
  check_same_shape(function, "out", out.source.shape, x.shape);
  check_same_device(function, "out", out.source.device, x.device);
  check(out.form == PreparedForm::folded, function, ": form is ", name_of(out.form),
        "; expected folded for a plain x; quantize it first");
  check(options.rounding == Rounding::nearest && options.block_shape == BlockShape::row &&
            options.hadamard.size == 0,
        function,
        ": stochastic rounding, square blocks or a Hadamard transform with a plain x; "
        "quantize it first");
  check_quantize_options(function, out.source.scheme, out.source.device, options, x.shape);
  if (out.has_source()) check_writable(function, "out.source", out.source.is_read_only);
  std::array<Occupied, 4> written = {data_of(out)};
  const OccupiedParts source("out.source", out.source);
  if (out.has_source()) std::copy(std::begin(source.part), std::end(source.part), &written[1]);
  check_apart(function, written, {"x", x});
  check_usable(out);
  if constexpr (has_cuda) cuda::quantize_prepared(x, out, options.scale_rule, stream);
}

}  // namespace mxkern
