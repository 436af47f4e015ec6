// bindings/options/kept_options.h: the last options of quantization, for callers that pass the same
// objects again and again, as layers do with what their recipes hold.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "signature.h"

namespace mxkern::bindings {

// Python checks keywords and makes options of them, in 2 us. Not for several threads at once.
class KeptOptions {
 public:
  // The options that were kept for these very objects; null where there are none.
  nanobind::handle find(int scheme, const Given& given, bool with_transform) const {
    for (const Kept& kept : kept_) {
      if (kept.scheme == scheme && kept.with_transform == with_transform &&
          std::equal(kept.values.begin(), kept.values.end(), given.values.begin(),
                     [](const nanobind::object& a, nanobind::handle b) { return a.is(b); })) {
        return kept.options;
      }
    }
    return {};
  }

  // Keeps options whose keywords cannot change, and no seeds, which seldom come again.
  void keep(int scheme, const Given& given, bool with_transform, nanobind::object options) {
    const auto stays = [](nanobind::handle value) {
      return value.is_none() || PyUnicode_CheckExact(value.ptr()) || PyBool_Check(value.ptr()) ||
             PyLong_CheckExact(value.ptr());
    };
    const auto end = given.values.begin() + option_count;
    if (!given[Keyword::seed].is_none() || !std::all_of(given.values.begin(), end, stays)) return;
    Kept& kept = kept_[next_++ % count];
    kept.scheme = scheme;
    kept.with_transform = with_transform;
    std::transform(given.values.begin(), end, kept.values.begin(),
                   [](nanobind::handle value) { return nanobind::borrow(value); });
    kept.options = std::move(options);
  }

 private:
  static constexpr std::size_t count = 16;

  struct Kept {
    int scheme = -1;
    bool with_transform = false;
    std::array<nanobind::object, option_count> values;
    nanobind::object options;
  };

  std::array<Kept, count> kept_;
  std::size_t next_ = 0;
};

}  // namespace mxkern::bindings
