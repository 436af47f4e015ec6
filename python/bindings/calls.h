// bindings/calls.h: what the operations have in common, from the arguments of a call in Python to
// the library's views of memory. The operations are written once, over arrays of any framework.
#pragma once

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bindings.h"
#include "block_scaled_object.h"
#include "options/kept_options.h"
#include "kept_plans.h"
#include "numbers.h"
#include "readers/reader.h"
#include "signature.h"

namespace mxkern::bindings {

// The parts of the Python package that calls use. `faults` is the module mxkern.faults, where
// errors are worded; names are in the order of the library's lists.
struct Package {
  nanobind::object faults;
  nanobind::object custom;  // the module mxkern.ops.custom_calls, of schemes of the user's own
  nanobind::object adapter_of;
  BlockScaledClass block_scaled;
  PreparedOperandClass prepared_operand;
  nanobind::dict schemes;  // the position of each name and record
  Objects scheme_names, layout_names, form_names, dtype_names, precision_names, element_names,
      rounding_names, rule_names;
  std::vector<int> code_elements, scale_elements;  // of each scheme
};

class Calls {
 public:
  explicit Calls(Package package) : package(std::move(package)) {}
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  void add(std::initializer_list<nanobind::handle> types, std::unique_ptr<Reader> reader) {
    for (const nanobind::handle& type : types) readers_by_type_[type.ptr()] = reader.get();
    readers_by_adapter_[reader->adapter.ptr()] = reader.get();
    readers_.push_back(std::move(reader));
  }

  // The reader of an array's type; null where Python has to look.
  const Reader* of_type(nanobind::handle x) const {
    const auto found = readers_by_type_.find(x.type().ptr());
    return found == readers_by_type_.end() ? nullptr : found->second;
  }

  // By the adapter that Python finds for an array, which raises where it is none.
  const Reader& of_array(const char* function, Name argument, nanobind::handle x) {
    if (const Reader* reader = of_type(x)) return *reader;
    const nanobind::object adapter = package.adapter_of(function, argument.text(), x);
    const auto known = readers_by_adapter_.find(adapter.ptr());
    if (known != readers_by_adapter_.end()) return *known->second;
    adapter.attr("read_by")(nanobind::find(this));
    if (const Reader* reader = readers_by_adapter_[adapter.ptr()]) return *reader;
    add({}, std::make_unique<Reader>(adapter));
    return *readers_by_adapter_[adapter.ptr()];
  }

  const Package package;
  KeptPlans plans;  // of products on CUDA devices
  KeptOptions options;

 private:
  std::deque<std::unique_ptr<Reader>> readers_;
  std::map<const PyObject*, const Reader*> readers_by_type_, readers_by_adapter_;
};

// A plain tensor that is read.
struct Plain {
  Buffer view;
  Array array;  // as it was given
  nanobind::object memory;
};

// A quantized tensor that is read or written.
struct Quantized {
  BlockScaled view;
  Extents extents;
  nanobind::object parts[3];  // codes, scales, tensor scale
  nanobind::object memory[3];
  Spans spans;
};

// An operand of a product, as the variant of the function's argument.
template <class View>
struct Operand {
  View view;
  Extents extents;
  std::vector<nanobind::object> memory;
  Spans spans;
};

// A plain result.
struct Output {
  nanobind::object array;
  Buffer view;
  bool is_given = false;
};

// A result without gaps: codes, scales and numbers.
struct DenseOutput {
  nanobind::object array;
  void* data = nullptr;
  bool is_given = false;
};

// A scheme of the user's own: mxkern/ops/custom_calls.py has what to do with it. Functions that
// have not end with its message.
struct IsCustom : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

// One call. Its methods read arguments and make results; what is wrong with them they say by an
// error under the name of the function that was called.
class Call {
 public:
  Call(Calls& calls, const char* function) : function(function), calls_(calls) {}

  const Package& package() const { return calls_.package; }
  KeptOptions& kept_options() const { return calls_.options; }
  KeptPlans& kept_plans() const { return calls_.plans; }

  // The framework of the call is that of this array.
  void enter(Name argument, nanobind::handle x) {
    reader_ = &calls_.of_array(function, argument, x);
    is_ready_ = reader_->is_ready();
  }
  const Reader& reader() const { return *reader_; }
  // Arrays may ask for gradients: the caller sees to them.
  void detach() { is_detached_ = true; }

  // A function of mxkern.faults. It raises, or returns what the call is to go on with.
  template <class... Args>
  nanobind::object fault(const char* name, const Args&... arguments) const {
    return package().faults.attr(name)(function, plain_argument(arguments)...);
  }
  // True where the operation becomes a JAX program, or a part of one.
  bool has_programs(nanobind::handle stream) const {
    return stream.is_none() && !reader_->programs.is_none();
  }

  // What it gives, of static arguments and of arrays; None where it is for the usual way.
  nanobind::object program(const nanobind::tuple& fixed, const nanobind::tuple& arrays,
                           nanobind::handle out = nanobind::none()) const {
    return reader_->programs.attr("run")(function, fixed, arrays, out);
  }

  int scheme(nanobind::handle name) const;
  int one_of(Name argument, nanobind::handle name, const Objects& names) const;
  int dtype(nanobind::handle dtype) const;
  float number(Name argument, nanobind::handle value) const;
  // beta adds to what is in out, which is needed then.
  float beta(nanobind::handle beta, nanobind::handle out) const;
  GemmPrecision precision(nanobind::handle name) const;

  // An array beside the others. is_e2m1: two codes in a byte may have a dtype of their own.
  Array look(Name argument, nanobind::handle x, bool is_e2m1 = false);
  // One of float32, float16 or bfloat16 and of one dimension or more.
  Array look_plain(Name argument, nanobind::handle x);
  // Refuses what is no such array, or makes one of it.
  void check_plain(Name argument, Array& array);
  // For reading. Rows may lie apart; anything else is copied once.
  Plain plain(Name argument, nanobind::handle x);
  Plain plain(Array array);
  Quantized quantized(Name argument, nanobind::handle q);
  // The fields of a BlockScaled: codes, scales, tensor_scale, scheme, shape, scale_layout.
  BlockScaledClass::Fields fields(Name argument, nanobind::handle q) const;
  // The shape that an operand says it has.
  Extents shape(Name argument, nanobind::handle given) const;
  // Numbers of one type, which may lie apart.
  Array numbers(Name argument, nanobind::handle x, Element element);
  void make_dense(Array& array) const;
  void other_device(Name argument, const Array& array) const;
  Operand<GemmOperand> left(nanobind::handle a, Name argument = "a");
  Operand<GemmRightOperand> right(nanobind::handle b, Name argument = "b");
  // Takes the framework of the call from the arrays of b.
  void enter_operand(nanobind::handle b, Name argument = "b");

  nanobind::object make(const Extents& extents, Element element, Device device, void*& data);
  // A new plain tensor of the dtype, or out, which has to be one.
  Output output(nanobind::handle out, const Extents& extents, int dtype, Device device);
  // A new one of the default dtype, or out, of any; a default other than float32 has to be out's.
  Output output(nanobind::handle out, const Extents& extents, Device device, int default_dtype);
  // A new array without gaps, or out, which has to be one.
  DenseOutput dense_output(Name argument, nanobind::handle out, const Extents& extents,
                           Element element, Device device);
  // A new quantized tensor, or out, which has to fit.
  Quantized made(int scheme, int layout, const Extents& extents, Device device);
  Quantized given(Name argument, nanobind::handle out, int scheme, int layout,
                  const Extents& extents, Device device);
  // An array of the kind that codes, scales and other parts are: of exactly these extents.
  Array written(Name argument, nanobind::handle out, const Extents& extents,
                std::initializer_list<Element> elements, Device device, bool rows_apart);

  // amax or tensor_scale, of which there is one at most, beside x: where options find it.
  void read_scalars(nanobind::handle amax, nanobind::handle tensor_scale, int scheme, Device device,
                    QuantizeOptions& options);
  // Memory for the amax that NVFP4 finds, where kernels pass it on.
  void make_found_amax(int scheme, Device device, QuantizeOptions& options);

  // Remembers memory that outputs may not overlap; check_apart adds each output to it.
  void take(const Span& span) { taken_.push_back(span); }
  void check_apart(Name argument, const Span& span);

  Stream stream(Device device) const;
  // A BlockScaled of the framework, where x is.
  nanobind::object result(const Quantized& made, nanobind::handle x) const;
  nanobind::object block_scaled(const nanobind::object (&parts)[3], nanobind::handle scheme,
                                const Extents& extents, ScaleLayout layout,
                                nanobind::handle x) const;
  nanobind::object leave(const nanobind::object& array, nanobind::handle like) const;
  void mark_written(nanobind::handle array) const;
  void mark_parts_written(nanobind::handle q) const;
  // A plain result: a new one goes to the framework of like; of one that was given that hears.
  template <class Made>
  nanobind::object finished(const Made& made, nanobind::handle like) const {
    if (!made.is_given) return leave(made.array, like);
    mark_written(made.array);
    return made.array;
  }

  // Runs work, whose errors name the library's function, under the name that was called.
  template <class Work>
  void run(std::int64_t elements, Work&& work) const {
    try {
      call(elements, std::forward<Work>(work));
    } catch (const InvalidType& error) {
      throw InvalidType(renamed(error.what()));
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(renamed(error.what()));
    } catch (const Unsupported& error) {
      throw Unsupported(renamed(error.what()));
    }
  }

  const char* const function;

 private:
  void look_through_adapter(Name argument, nanobind::handle x, bool is_e2m1, Array& array);
  void read_description(const nanobind::object& entered, Array& array) const;
  Array part(Name argument, nanobind::handle x, Element element, const Extents& extents,
             const char* name, const Quantized& q, int scheme);
  Operand<PreparedOperand> prepared(Name argument, nanobind::handle p);
  std::string renamed(const std::string& message) const;
  const float* scalar(Name argument, nanobind::handle value, Device device, bool is_factor,
                      Span& span);

  static std::string plain_argument(const Name& name) { return name.text(); }
  template <class T>
  static const T& plain_argument(const T& argument) {
    return argument;
  }

  Calls& calls_;
  const Reader* reader_ = nullptr;
  bool is_ready_ = false, is_detached_ = false;
  nanobind::object like_;  // the first array, on whose device results are made
  Spans taken_;
  std::vector<nanobind::object> kept_;  // what views point into
  float factors_[2];                    // numbers that options point to
  int factor_count_ = 0;
};

// How mxkern/ops/custom_calls.py takes an argument of the extension module: a signature by its
// function's name.
inline const std::string& custom_argument(const Signature& signature) { return signature.function; }
template <class T>
const T& custom_argument(const T& argument) {
  return argument;
}

// The function `compiled`, in whose place the one of this name in mxkern/ops/custom_calls.py is
// called where a call has a scheme or an option of the user's own.
template <class... Args>
auto or_custom(const char* name, nanobind::object (*compiled)(Calls&, Args...)) {
  return [=](Calls& calls, Args... arguments) -> Any {
    try {
      return compiled(calls, arguments...);
    } catch (const IsCustom&) {
    }
    return nanobind::object(calls.package.custom.attr(name)(custom_argument(arguments)...));
  };
}

// The scope in which the framework's current stream is the one given, if one is.
class StreamScope {
 public:
  StreamScope(const Call& call, nanobind::handle stream, nanobind::handle array);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  nanobind::object scope_;
};

}  // namespace mxkern::bindings
