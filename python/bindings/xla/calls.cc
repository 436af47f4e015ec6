// bindings/xla/calls.cc: the operations for programs that XLA compiles, which call them without
// Python in between, on the CPU and on a CUDA device's stream.
#include "bindings.h"

namespace nb = nanobind;

#if defined(MXKERN_HAS_XLA_FFI)
#include <exception>
#include <new>

#include "xla/operations.h"

namespace mxkern::bindings {
namespace {

using Operation = void(XlaCall&);

// An exception must not reach XLA.
template <Operation* operation>
ffi::Error run(XlaCall call) {
  try {
    operation(call);
    return ffi::Error::Success();
  } catch (const InvalidArgument& error) {
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, error.what());
  } catch (const Unsupported& error) {
    return ffi::Error(ffi::ErrorCode::kUnimplemented, error.what());
  } catch (const std::bad_alloc&) {
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, "mxkern: no memory to work in");
  } catch (const std::exception& error) {
    return ffi::Error(ffi::ErrorCode::kInternal, error.what());
  }
}

template <Operation* operation>
ffi::Error run_on_cpu(ffi::RemainingArgs arguments, ffi::RemainingRets results,
                      ffi::Span<const std::int64_t> numbers) {
  return run<operation>(XlaCall(arguments, results, numbers, {}, {}));
}

template <Operation* operation>
ffi::Error run_on_cuda(void* stream, std::int32_t device, ffi::RemainingArgs arguments,
                       ffi::RemainingRets results, ffi::Span<const std::int64_t> numbers) {
  return run<operation>(
      XlaCall(arguments, results, numbers, {DeviceType::cuda, device}, Stream{stream}));
}

nb::object capsule_of(XLA_FFI_Handler* handler) {
  nb::object capsule = nb::steal(PyCapsule_New(reinterpret_cast<void*>(handler), nullptr, nullptr));
  if (!capsule.is_valid()) nb::raise_python_error();
  return capsule;
}

// On a CUDA device XLA may record calls in graphs: all their memory is the program's, and they
// launch kernels and nothing else.
template <Operation* operation>
void add(nb::dict& handlers, const char* name) {
  XLA_FFI_DEFINE_HANDLER(
      on_cpu, run_on_cpu<operation>,
      ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<ffi::Span<const std::int64_t>>(
          "numbers"));
  XLA_FFI_DEFINE_HANDLER(on_cuda, run_on_cuda<operation>,
                         ffi::Ffi::Bind()
                             .Ctx<ffi::PlatformStream<void*>>()
                             .Ctx<ffi::DeviceOrdinal>()
                             .RemainingArgs()
                             .RemainingRets()
                             .Attr<ffi::Span<const std::int64_t>>("numbers"),
                         {ffi::Traits::kCmdBufferCompatible});
  handlers[name] = nb::make_tuple(capsule_of(on_cpu), capsule_of(on_cuda));
}

nb::dict handlers() {
  nb::dict handlers;
  add<xla_operations::quantize>(handlers, "quantize");
  add<xla_operations::quantize_both>(handlers, "quantize_both");
  add<xla_operations::fake_quantize>(handlers, "fake_quantize");
  add<xla_operations::tensor_amax>(handlers, "tensor_amax");
  add<xla_operations::dequantize>(handlers, "dequantize");
  add<xla_operations::random_hadamard>(handlers, "random_hadamard");
  add<xla_operations::move_scales>(handlers, "move_scales");
  add<xla_operations::prepare_operand>(handlers, "prepare_operand");
  add<xla_operations::quantize_prepared>(handlers, "quantize_prepared");
  add<xla_operations::gemm>(handlers, "gemm");
  add<xla_operations::grouped_gemm>(handlers, "grouped_gemm");
  return handlers;
}

nb::object version() { return nb::make_tuple(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR); }
std::size_t alignment() { return workspace_alignment; }

}  // namespace
}  // namespace mxkern::bindings

#else

namespace mxkern::bindings {
namespace {

nb::dict handlers() { return {}; }
nb::object version() { return nb::none(); }
std::size_t alignment() { return 1; }

}  // namespace
}  // namespace mxkern::bindings

#endif

namespace mxkern::bindings {

// By operation, the handlers for the CPU and for CUDA devices; the version of the interface by
// which programs call them, which XLA's is to be at least; and how many bytes more the working
// memory of a product has to have, for it to be aligned.
void bind_xla_calls(nb::module_& module) {
  module.def("xla_version", &version, nb::sig("def xla_version() -> tuple[int, int] | None"));
  module.def("xla_alignment", &alignment);
  module.def("xla_handlers", &handlers,
             nb::sig("def xla_handlers() -> dict[str, tuple[object, object]]"));
}

}  // namespace mxkern::bindings
