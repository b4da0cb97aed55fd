// SPDX-License-Identifier: Apache-2.0
// Stands in for image_png.cpp in a build without libpng.
#include "apps/common/image.hpp"

namespace apps {

bool can_write_png() { return false; }

void write_png(const std::string& /*file*/, const Image& /*image*/) {}  // `check` refuses a file name in this build

}  // namespace apps
