// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/pencils.hpp"

#include <memory>

namespace apps {

enum class Direction { forward, backward };

/// The transforms in one dimension, in place, of the lines of a part of a pencil; by FFTW.
class Lines {
 public:
  /// @param part  whole along the pencil's axis
  /// @param data  the first cell of the pencil
  Lines(const Pencil& pencil, const Block& part, Complex* data, Direction direction);
  void run() const;

 private:
  struct End {
    void operator()(void* plan) const;
  };

  std::unique_ptr<void, End> plan_;  // of the lines of a plane
  Complex* first_ = nullptr;
  Index planes_ = 0;
  Index stride_ = 0;  // from plane to plane
};

}  // namespace apps
