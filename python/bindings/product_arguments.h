// bindings/product_arguments.h: what calls of matrix products, and of what consists of them, take
// beside their operands.
#pragma once

#include <optional>
#include <vector>

#include "calls.h"
#include "gemm_workspace.h"
#include "mxkern/plan.h"

namespace mxkern::bindings {

inline void take(Call& call, const Spans& spans) {
  for (const Span& span : spans) call.take(span);
}

// Memory to work in on a CUDA device.
inline Workspace workspace_of(Call& call, std::size_t bytes, Device device,
                              nanobind::object& memory) {
  Workspace workspace;
  if (bytes == 0) return workspace;
  const Extents size({static_cast<std::int64_t>(bytes)});
  memory = call.make(size, Element::uint8, device, workspace.data);
  workspace.bytes = bytes;
  return workspace;
}

// Runs work(workspace) with `bytes` of memory, on the CPU of the host.
template <class Work>
void run_with(Call& call, std::int64_t elements, std::size_t bytes, Device device, Work&& work) {
  if (device.type == DeviceType::cpu) {
    return call.run(elements, [&] {
      const OwnedMemory memory(bytes);
      work(Workspace{memory.data(), bytes});
    });
  }
  nanobind::object memory;
  const Workspace workspace = workspace_of(call, bytes, device, memory);
  call.run(elements, [&] { work(workspace); });
}

// [..., M, N] of [..., M, K] and [..., N, K].
inline Extents product_extents(const Call& call, Extents a, const Extents& b) {
  const bool fit = b.dimensions > 1 && a.last() == b.items[b.dimensions - 1] &&
                   (b.dimensions == 2 || same_batch(a, b));
  if (!fit) call.fault("product_shape", a.tuple(), b.tuple());
  a.last() = b.items[b.dimensions - 2];
  return a;
}

// Reads a bias [N] for all rows of a product, and points the options to it; not for None.
template <class Options>
void read_bias(Call& call, nanobind::handle bias, const Extents& extents,
               std::optional<Plain>& read, Options& options) {
  if (bias.is_none()) return;
  read = call.plain("bias", bias);
  const Extents& got = read->array.extents;
  const std::int64_t columns = extents.items[extents.dimensions - 1];
  if (got.dimensions != 1 || got.items[0] != columns) {
    call.fault("bias", got.tuple(), nanobind::make_tuple(columns));
  }
  call.take(read->array.span());
  options.bias = &read->view;
}

// a . b^T with a bias, into out or into a new array. The operands and their extents were checked.
inline Output multiplied(Call& call, const GemmOperand& a, const GemmRightOperand& b,
                         const Extents& extents, nanobind::handle bias, nanobind::handle out,
                         int dtype, GemmOptions options) {
  const Device device = source_of(b).device;
  std::optional<Plain> offset;
  read_bias(call, bias, extents, offset, options);
  const Output product = call.output(out, extents, device, dtype);
  if (device.type == DeviceType::cpu) {
    call.run(product.view.shape.size() * source_of(b).shape.columns,
             [&] { mxkern::gemm(a, b, product.view, options); });
    return product;
  }
  nanobind::object memory;
  call.run(0, [&] {
    const GemmPlan plan = call.kept_plans().plan(a, b, product.view, options);
    const Workspace workspace = workspace_of(call, plan.workspace_bytes(), device, memory);
    mxkern::gemm(plan, a, b, product.view, options, workspace, call.stream(device));
  });
  return product;
}

// The array that stands for b where the result goes home.
inline nanobind::object array_of(const Call& call, nanobind::handle b) {
  nanobind::object owner = nanobind::borrow(b);
  if (call.package().prepared_operand.made(b)) {
    owner = nanobind::getattr(b, "source");
    if (!call.package().block_scaled.made(owner)) return nanobind::getattr(b, "data");
  }
  return nanobind::getattr(owner, "codes");
}

// Nobody looks at what rows allow, as gemm does for "auto".
inline GemmPrecision grouped_precision(const Call& call, nanobind::handle name) {
  const int position = position_of_name(name, call.package().precision_names);
  if (position <= 0) call.fault("grouped_precision", name);
  return all_gemm_precisions[position];
}

// A number for each of `count`, of as many as there are where that is negative. fault: what says
// that there are more or fewer.
template <class T>
const T* numbers_of(Call& call, Name argument, nanobind::handle given, Element element,
                    std::int64_t& count, Device device, std::vector<nanobind::object>& kept,
                    const char* fault = "group_shape") {
  Array array = call.numbers(argument, given, element);
  const bool fits = array.extents.dimensions == 1 && (count < 0 || array.extents.last() == count);
  if (!fits) call.fault(fault, argument, array.extents.tuple(), count);
  if (array.device != device) call.other_device(argument, array);
  call.take(array.span());
  if (!array.is_dense) call.make_dense(array);
  count = array.extents.last();
  kept.push_back(array.object);
  return static_cast<const T*>(array.data);
}

// A row of biases for each group, as the library has it.
struct GroupBias {
  std::optional<Plain> read;
  Buffer view;

  GroupBias() = default;
  GroupBias(Call& call, Name argument, nanobind::handle given, std::int64_t groups,
            std::int64_t columns) {
    if (given.is_none()) return;
    read = call.plain(argument, given);
    const Extents& got = read->array.extents;
    if (got.dimensions != 2 || got.items[0] != groups || got.items[1] != columns) {
      call.fault("group_bias", argument, got.tuple(), nanobind::make_tuple(groups, columns));
    }
    call.take(read->array.span());
    view = read->view;  // [1, G, N] as [G, 1, N]
    view.shape = {groups, 1, columns};
    view.batch_stride = read->view.row_stride;
    view.row_stride = columns;
  }

  const Buffer* buffer() const { return read ? &view : nullptr; }
};

}  // namespace mxkern::bindings
