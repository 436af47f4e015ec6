// bindings/product_calls.cc: matrix products over arrays of any framework.
#include <variant>

#include "calls.h"
#include "mxkern/plan.h"
#include "product_arguments.h"
#include "views.h"

namespace nb = nanobind;

namespace mxkern::bindings {
namespace {

nb::object finished(const Call& call, const Output& product, nb::handle b) {
  return call.finished(product, call.reader().converts ? array_of(call, b) : nb::none());
}

// Throws IsCustom for a tensor that is quantized by a scheme of the user's own.
void check_compiled(const Call& call, nb::handle operand) {
  if (!call.package().block_scaled.made(operand)) return;
  if (const auto fields = call.package().block_scaled.fields_of(operand)) call.scheme((*fields)[3]);
}

nb::object gemm(Calls& calls, nb::handle a, nb::handle b, nb::handle dtype_name, nb::handle out,
                nb::handle alpha, nb::handle beta, nb::handle bias, nb::handle precision,
                nb::handle stream) {
  Call call(calls, "gemm");
  const int dtype = call.dtype(dtype_name);
  GemmOptions options;
  options.alpha = call.number("alpha", alpha);
  options.beta = call.beta(beta, out);
  options.precision = call.precision(precision);
  call.enter_operand(b);
  if (call.has_programs(stream)) {
    check_compiled(call, a);
    check_compiled(call, b);
    const nb::object product =
        call.program(nb::make_tuple(dtype, options.alpha, static_cast<int>(options.precision)),
                     nb::make_tuple(a, b, bias), out);
    if (!product.is_none()) return product;
  }
  const StreamScope scope(call, stream, stream.is_none() ? nb::none() : array_of(call, b));
  const auto right = call.right(b);
  const auto left = call.left(a);
  const Extents extents = product_extents(call, left.extents, right.extents);
  take(call, left.spans);
  take(call, right.spans);
  const Output product =
      multiplied(call, left.view, right.view, extents, bias, out, dtype, options);
  return finished(call, product, b);
}

// The operands of a grouped product, and its groups.
struct Grouped {
  Operand<GemmOperand> left;
  Operand<GemmRightOperand> right;
  Device device;
  bool has_columns = false;  // which belong to groups, where b is one matrix
  std::int64_t count = -1;
  std::int64_t rows = 0;  // of the product, where groups are of rows
  const std::int32_t* ends = nullptr;
  const float* factors = nullptr;
  const std::int32_t* copied = nullptr;  // the row of a that each row copies
  std::vector<nb::object> kept;

  Grouped(Call& call, nb::handle a, nb::handle b, nb::handle given_ends, nb::handle given_factors,
          nb::handle given_rows = nb::none())
      : right(call.right(b)) {
    left = call.left(a);
    Extents& given = left.extents;
    Extents& weights = right.extents;
    if (given.dimensions != 2 || (weights.dimensions != 2 && weights.dimensions != 3) ||
        given.last() != weights.last()) {
      call.fault("grouped_shapes", given.tuple(), weights.tuple());
    }
    device = source_of(right.view).device;
    has_columns = weights.dimensions == 2;
    if (!has_columns) count = weights.items[0];
    take(call, left.spans);
    take(call, right.spans);
    ends = numbers_of<std::int32_t>(call, "ends", given_ends, Element::int32, count, device, kept);
    if (!given_factors.is_none()) {
      factors =
          numbers_of<float>(call, "factors", given_factors, Element::float32, count, device, kept);
    }
    rows = given.items[0];
    if (!given_rows.is_none()) read_rows(call, given_rows);
  }

  Extents extents() const {
    if (has_columns) return Extents({count, rows, right.extents.items[0]});
    return Extents({rows, right.extents.items[1]});
  }

  Groups groups() const {
    if (has_columns) return ColumnGroups{ends, count};
    return RowGroups{ends, count};
  }

 private:
  void read_rows(Call& call, nb::handle given) {
    if (has_columns) call.fault("rows_of_columns", right.extents.tuple());
    rows = -1;
    copied = numbers_of<std::int32_t>(call, "rows", given, Element::int32, rows, device, kept,
                                      "row_numbers");
    static constexpr std::int32_t nothing = -1;
    if (rows == 0) copied = &nothing;  // what is null says that nothing is copied
  }
};

Any grouped_gemm(Calls& calls, nb::handle a, nb::handle b, nb::handle ends, nb::handle dtype_name,
                 nb::handle out, nb::handle alpha, nb::handle beta, nb::handle factors,
                 nb::handle bias, nb::handle rows, nb::handle precision, nb::handle stream) {
  Call call(calls, "grouped_gemm");
  const int dtype = call.dtype(dtype_name);
  GroupedGemmOptions options;
  options.precision = grouped_precision(call, precision);
  options.alpha = call.number("alpha", alpha);
  options.beta = call.beta(beta, out);
  call.enter_operand(b);
  if (rows.is_none() && call.has_programs(stream)) {
    const nb::object product =
        call.program(nb::make_tuple(dtype, options.alpha, static_cast<int>(options.precision)),
                     nb::make_tuple(a, b, ends, factors, bias), out);
    if (!product.is_none()) return product;
  }
  const StreamScope scope(call, stream, stream.is_none() ? nb::none() : array_of(call, b));
  const Grouped grouped(call, a, b, ends, factors, rows);
  options.factors = grouped.factors;
  options.rows = grouped.copied;
  const Extents extents = grouped.extents();
  const GroupBias biases(call, "bias", bias, grouped.count, extents.items[extents.dimensions - 1]);
  options.bias = biases.buffer();
  const Output product = call.output(out, extents, grouped.device, dtype);
  const auto& left = grouped.left.view;
  const auto& right = grouped.right.view;
  const Groups groups = grouped.groups();
  nb::object memory;
  const bool on_cpu = grouped.device.type == DeviceType::cpu;
  call.run(on_cpu ? product.view.shape.size() * source_of(right).shape.columns : 0, [&] {
    if (on_cpu) return grouped_gemm_with_workspace(left, right, groups, product.view, options);
    const std::size_t bytes =
        mxkern::grouped_gemm_workspace_bytes(left, right, groups, product.view, options);
    const Workspace workspace = workspace_of(call, bytes, grouped.device, memory);
    mxkern::grouped_gemm(left, right, groups, product.view, options, workspace,
                         call.stream(grouped.device));
  });
  return finished(call, product, b);
}

// Returns the device to plan for, in the library's words; empty means the device of `right`. If a
// form is given, `right` becomes what prepare_operand would make of it. Plans read no memory.
std::string planned_device(const Call& call, nb::handle device, nb::handle form,
                           GemmRightOperand& right) {
  const Device here = source_of(right).device;
  const bool is_prepared = std::holds_alternative<PreparedOperand>(right);
  const nb::object asked = call.fault("planned", device, form, number_of(here), is_prepared);
  if (!form.is_none()) {
    PreparedOperand prepared;
    prepared.form = all_prepared_forms[nb::cast<int>(asked[1])];
    const BlockScaled& source = prepared.source = std::get<BlockScaled>(right);
    call.run(0, [&] { usable_prepared_form(prepared.form, source.scheme, here); });  // may throw
    prepared.bytes = prepared_bytes(prepared.form, source.scheme, source.shape);
    right = prepared;
  }
  return nb::cast<std::string>(asked[0]);
}

nb::tuple words_of(const GemmExplanation& text) {
  return nb::make_tuple(text.device, text.path, text.reason, text.left, text.right, text.kernel,
                        text.error, text.workspace_bytes);
}

nb::object explain_gemm(Calls& calls, const char* function, nb::handle a, nb::handle b,
                        nb::handle dtype_name, nb::handle precision, nb::handle beta,
                        nb::handle device, nb::handle form) {
  Call call(calls, function);
  const DType dtype = all_dtypes[call.dtype(dtype_name)];
  GemmOptions options;
  options.precision = call.precision(precision);
  options.beta = call.number("beta", beta);
  call.enter_operand(b);
  auto right = call.right(b);
  const auto left = call.left(a);
  const Extents extents = product_extents(call, left.extents, right.extents);
  const std::string kind = planned_device(call, device, form, right.view);
  const auto out = Buffer::dense(nullptr, dtype, extents.shape(), source_of(right.view).device);
  GemmExplanation text;
  call.run(0, [&] { text = mxkern::explain_gemm(left.view, right.view, out, options, kind); });
  return words_of(text);
}

Values explain_grouped_gemm(Calls& calls, nb::handle a, nb::handle b, nb::handle ends,
                            nb::handle dtype_name, nb::handle precision, nb::handle device,
                            nb::handle form) {
  Call call(calls, "explain_grouped_gemm");
  const DType dtype = all_dtypes[call.dtype(dtype_name)];
  GroupedGemmOptions options;
  options.precision = grouped_precision(call, precision);
  call.enter_operand(b);
  Grouped grouped(call, a, b, ends, nb::none());
  const std::string kind = planned_device(call, device, form, grouped.right.view);
  const auto out = Buffer::dense(nullptr, dtype, grouped.extents().shape(), grouped.device);
  GemmExplanation text;
  call.run(0, [&] {
    text = mxkern::explain_grouped_gemm(grouped.left.view, grouped.right.view, grouped.groups(),
                                        out, options, kind);
  });
  return words_of(text);
}

// Checked operands as the library sees them, and their shapes: JAX programs are made of them.
Values operand_views(Calls& calls, const char* function, nb::handle a, nb::handle b) {
  Call call(calls, function);
  call.enter_operand(b);
  const auto right = call.right(b);
  const auto left = call.left(a);
  product_extents(call, left.extents, right.extents);
  return nb::make_tuple(tuple_of(left.view), tuple_of(right.view), left.extents.tuple(),
                        right.extents.tuple());
}

// Checked operands and shapes of a grouped product, the address of its ends and their number.
Values grouped_views(Calls& calls, const char* function, nb::handle a, nb::handle b,
                     nb::handle ends, nb::handle factors) {
  Call call(calls, function);
  call.enter_operand(b);
  const Grouped grouped(call, a, b, ends, factors);
  return nb::make_tuple(tuple_of(grouped.left.view), tuple_of(grouped.right.view),
                        grouped.left.extents.tuple(), grouped.right.extents.tuple(),
                        reinterpret_cast<std::uintptr_t>(grouped.ends), grouped.count);
}

}  // namespace

void bind_product_calls(nb::module_& module) {
  using namespace nb::literals;
  module.def("gemm", or_custom("gemm", &gemm), "calls"_a, "a"_a.none(), "b"_a.none(),
             "dtype"_a.none(), "out"_a.none(), "alpha"_a.none(), "beta"_a.none(), "bias"_a.none(),
             "precision"_a.none(), "stream"_a.none());
  module.def("grouped_gemm", &grouped_gemm, "calls"_a, "a"_a.none(), "b"_a.none(), "ends"_a.none(),
             "dtype"_a.none(), "out"_a.none(), "alpha"_a.none(), "beta"_a.none(),
             "factors"_a.none(), "bias"_a.none(), "rows"_a.none(), "precision"_a.none(),
             "stream"_a.none());
  module.def("explain_gemm", or_custom("explain_gemm", &explain_gemm), "calls"_a, "function"_a,
             "a"_a.none(), "b"_a.none(), "dtype"_a.none(), "precision"_a.none(), "beta"_a.none(),
             "device"_a.none(), "form"_a.none());
  module.def("explain_grouped_gemm", &explain_grouped_gemm, "calls"_a, "a"_a.none(), "b"_a.none(),
             "ends"_a.none(), "dtype"_a.none(), "precision"_a.none(), "device"_a.none(),
             "form"_a.none());
  module.def("operand_views", &operand_views, "calls"_a, "function"_a, "a"_a.none(), "b"_a.none());
  module.def("grouped_views", &grouped_views, "calls"_a, "function"_a, "a"_a.none(), "b"_a.none(),
             "ends"_a.none(), "factors"_a.none());
}

}  // namespace mxkern::bindings
