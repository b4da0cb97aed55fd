// SPDX-License-Identifier: Apache-2.0
#include "apps/common/image.hpp"

#include <png.h>

#include <stdexcept>

namespace apps {

bool can_write_png() { return true; }

void write_png(const std::string& file, const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGB;
  if (png_image_write_to_file(&png, file.c_str(), 0, image.pixels.data(), 0, nullptr) == 0)
    throw std::runtime_error("cannot write " + file + ": " + static_cast<const char*>(png.message));
}

}  // namespace apps
