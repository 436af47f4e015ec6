// bindings/torch_operands.h: BlockScaled, PreparedOperand and plain tensors of PyTorch as the
// library sees them. Nothing comes of what is not ordinary.
#pragma once

#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "block_scaled_object.h"
#include "torch_tensor.h"

namespace mxkern::bindings {

// A tensor of float32, float16 or bfloat16, or an operand of gemm, and what it is for the library.
template <class View>
struct Read {
  View view;
  Extents extents;
};

// Dtypes are positions among the samples of TorchTensors, in the order of all_dtypes and
// all_schemes; names in that of all_schemes, all_scale_layouts and all_prepared_forms.
struct TorchOperands {
  TorchTensors tensors;
  BlockScaledClass block_scaled;
  PreparedOperandClass prepared_operand;
  std::vector<int> plain_elements;
  std::vector<int> code_elements;
  std::vector<int> scale_elements;
  int end_element;  // of the ends of groups: int32
  Objects scheme_names;
  Objects layout_names;
  Objects form_names;

  int byte_element() const {  // of packed codes: uint8
    return code_elements[static_cast<std::size_t>(Scheme::mxfp4)];
  }

  // A plain tensor where the results will be made.
  std::optional<Read<Buffer>> plain(nanobind::handle x) const {
    const auto tensor = tensors.read(x);
    if (!tensor || tensor->extents.dimensions < 1 || tensors.negated(x) ||
        !tensors.is_current(tensor->device)) {
      return std::nullopt;
    }
    for (std::size_t i = 0; i < plain_elements.size(); ++i) {
      if (tensor->element != plain_elements[i]) continue;
      const Buffer view = Buffer::dense(tensor->data, all_dtypes[i], tensor->extents.shape(),
                                        {DeviceType::cuda, tensor->device});
      if (view.data == nullptr && view.shape.size() > 0) return std::nullopt;
      return Read<Buffer>{view, tensor->extents};
    }
    return std::nullopt;
  }

  // One of the arrays of a BlockScaled, of exactly these extents.
  template <class T>
  bool part(nanobind::handle x, int element, const Extents& extents, Device device,
            T*& memory) const {
    const auto tensor = tensors.read(x);
    if (!tensor || tensor->element != element || tensor->device != device.index ||
        !(tensor->extents == extents)) {
      return false;
    }
    if (element == plain_elements[0] && tensors.negated(x)) return false;
    memory = static_cast<T*>(tensor->data);
    return true;
  }

  std::optional<Read<BlockScaled>> quantized(nanobind::handle q) const {
    const auto fields = block_scaled.fields_of(q);
    if (!fields) return std::nullopt;
    const auto& [codes_held, scales, tensor_scale, scheme_name, shape, layout_name] = *fields;
    const int scheme = position_of_name(scheme_name, scheme_names);
    const int layout = position_of_name(layout_name, layout_names);
    Read<BlockScaled> read;
    if (scheme < 0 || layout < 0 || !read_extents(shape, read.extents)) return std::nullopt;
    BlockScaled& view = read.view;
    view.scheme = all_schemes[scheme];
    view.scale_layout = all_scale_layouts[layout];
    const auto codes = tensors.read(codes_held);
    // Extents that some tensor has multiply without overflow; others might not.
    if (!codes || codes->element != code_elements[scheme] ||
        !(codes->extents == code_extents(view.scheme, read.extents))) {
      return std::nullopt;
    }
    view.codes = static_cast<std::uint8_t*>(codes->data);
    view.device = {DeviceType::cuda, codes->device};
    view.shape = read.extents.shape();
    if (!part(scales, scale_elements[scheme], scale_extents(view.scale_index(), read.extents),
              view.device, view.scales)) {
      return std::nullopt;
    }
    if (facts_of(view.scheme).has_tensor_scale) {
      if (!part(tensor_scale, plain_elements[0], Extents{}, view.device, view.tensor_scale)) {
        return std::nullopt;
      }
    } else if (!tensor_scale.is_none()) {
      return std::nullopt;
    }
    return read;
  }

  std::optional<Read<PreparedOperand>> prepared(nanobind::handle p) const {
    const auto fields = prepared_operand.fields_of(p);
    if (!fields) return std::nullopt;
    const auto& [form_name, data, source_held, scheme_name, shape_held] = *fields;
    const int form = position_of_name(form_name, form_names);
    const auto source = quantized(source_held);
    if (form < 0 || !source || data.is_none()) return std::nullopt;
    Extents shape;
    if (position_of_name(scheme_name, scheme_names) != static_cast<int>(source->view.scheme) ||
        !read_extents(shape_held, shape) || !(shape == source->extents)) {
      return std::nullopt;
    }
    Read<PreparedOperand> read;
    read.extents = shape;
    read.view.form = static_cast<PreparedForm>(form);
    read.view.source = source->view;
    read.view.bytes = prepared_bytes(read.view.form, source->view.scheme, source->view.shape);
    Extents size;
    size.dimensions = 1;
    size.last() = static_cast<std::int64_t>(read.view.bytes);
    if (!part(data, byte_element(), size, source->view.device, read.view.data)) {
      return std::nullopt;
    }
    return read;
  }

  // As the variant of gemm's argument. None for what is not ordinary.
  std::optional<Read<GemmRightOperand>> right_operand(nanobind::handle b) const {
    if (prepared_operand.made(b)) {
      const auto read = prepared(b);
      if (!read) return std::nullopt;
      return Read<GemmRightOperand>{read->view, read->extents};
    }
    const auto read = quantized(b);
    if (!read) return std::nullopt;
    return Read<GemmRightOperand>{read->view, read->extents};
  }

  std::optional<Read<GemmOperand>> left_operand(nanobind::handle a) const {
    if (prepared_operand.made(a)) {
      const auto read = prepared(a);
      if (!read) return std::nullopt;
      return Read<GemmOperand>{read->view, read->extents};
    }
    if (block_scaled.made(a)) {
      const auto read = quantized(a);
      if (!read) return std::nullopt;
      return Read<GemmOperand>{read->view, read->extents};
    }
    const auto read = plain(a);
    if (!read) return std::nullopt;
    return Read<GemmOperand>{read->view, read->extents};
  }
};

// Of an operand of a product; null where it has none.
template <class Operand>
const float* tensor_scale_of(const Operand& operand) {
  return std::visit(
      [](const auto& x) -> const float* {
        if constexpr (requires { x.source; }) return x.source.tensor_scale;
        if constexpr (requires { x.tensor_scale; }) return x.tensor_scale;
        return nullptr;
      },
      operand);
}

inline Device device_of(const GemmRightOperand& operand) {
  return std::visit(
      [](const auto& right) {
        if constexpr (requires { right.source; })
          return right.source.device;
        else
          return right.device;
      },
      operand);
}

}  // namespace mxkern::bindings
