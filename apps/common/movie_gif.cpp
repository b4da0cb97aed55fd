// SPDX-License-Identifier: Apache-2.0
#include "apps/common/movie.hpp"

#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <new>
#include <stdexcept>

namespace apps {
namespace {

constexpr int kColours = 256;
constexpr int kHundredthsPerFrame = 5;

struct FreeMap {
  void operator()(ColorMapObject* map) const { GifFreeMapObject(map); }
};

std::unique_ptr<ColorMapObject, FreeMap> colours_of(Palette palette) {
  std::unique_ptr<ColorMapObject, FreeMap> map(GifMakeMapObject(kColours, nullptr));
  if (map == nullptr) throw std::bad_alloc();
  for (int i = 0; i < kColours; ++i) {
    const Colour colour = colour_at(palette, i / (kColours - 1.0));
    map->Colors[i] = {colour.red, colour.green, colour.blue};
  }
  return map;
}

}  // namespace

class Movie::File {
 public:
  File(std::string name, const PictureSize& size, double low, double high, Palette palette)
      : name_(std::move(name)), size_(size), low_(low), high_(high), stream_(name_, std::ios::binary) {
    if (!stream_) fail(E_GIF_ERR_OPEN_FAILED);
    int error = 0;
    gif_ = EGifOpen(&stream_, write, &error);  // given a name, giflib makes a file that other users cannot read
    if (gif_ == nullptr) fail(error);
    try {
      begin(palette);
    } catch (...) {
      close_quietly();
      throw;
    }
  }
  ~File() { close_quietly(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void add(std::span<const double> values) {
    std::vector<GifPixelType> pixels;
    pixels.reserve(values.size());
    for (const double value : values) pixels.push_back(colour_of(value));
    const GraphicsControlBlock control{DISPOSE_DO_NOT, false, kHundredthsPerFrame, NO_TRANSPARENT_COLOR};
    std::array<GifByteType, 4> bytes{};
    EGifGCBToExtension(&control, bytes.data());
    check(EGifPutExtension(gif_, GRAPHICS_EXT_FUNC_CODE, static_cast<int>(bytes.size()), bytes.data()));
    check(EGifPutImageDesc(gif_, 0, 0, width(), height(), false, nullptr));
    for (int y = 0; y < height(); ++y)
      check(EGifPutLine(gif_, pixels.data() + static_cast<std::ptrdiff_t>(y) * width(), width()));
  }

  void close() {
    int error = 0;
    if (EGifCloseFile(std::exchange(gif_, nullptr), &error) != GIF_OK) fail(error);
    stream_.close();
    if (!stream_) fail(E_GIF_ERR_CLOSE_FAILED);
  }

 private:
  static int write(GifFileType* gif, const GifByteType* bytes, int count) {
    auto& stream = *static_cast<std::ofstream*>(gif->UserData);
    return stream.write(reinterpret_cast<const char*>(bytes), count) ? count : 0;
  }
  void begin(Palette palette) {
    EGifSetGifVersion(gif_, true);
    check(EGifPutScreenDesc(gif_, width(), height(), 8, 0, colours_of(palette).get()));
    constexpr std::array<GifByteType, 3> kForEver = {1, 0, 0};
    check(EGifPutExtensionLeader(gif_, APPLICATION_EXT_FUNC_CODE));
    check(EGifPutExtensionBlock(gif_, 11, "NETSCAPE2.0"));
    check(EGifPutExtensionBlock(gif_, static_cast<int>(kForEver.size()), kForEver.data()));
    check(EGifPutExtensionTrailer(gif_));
  }
  GifPixelType colour_of(double value) const {
    const double part = (value - low_) / (high_ - low_);
    const double cut = part > 0 ? std::min(part, 1.0) : 0.0;  // as colour_at does
    return static_cast<GifPixelType>(std::lround(cut * (kColours - 1)));
  }
  void check(int status) const {
    if (status != GIF_OK) fail(gif_->Error);
  }
  [[noreturn]] void fail(int error) const {
    const char* const why = GifErrorString(error);
    throw std::runtime_error("cannot write " + name_ + ": " + (why == nullptr ? "giflib does not say why" : why));
  }
  void close_quietly() noexcept {
    int error = 0;
    if (gif_ != nullptr) EGifCloseFile(gif_, &error);
  }
  int width() const { return static_cast<int>(size_.width); }
  int height() const { return static_cast<int>(size_.height); }

  const std::string name_;
  const PictureSize size_;
  const double low_;
  const double high_;
  std::ofstream stream_;
  GifFileType* gif_ = nullptr;
};

bool can_write_gif() { return true; }

Movie::Movie(const std::string& file, Index nx, Index ny, double low, double high, Palette palette)
    : nx_(nx), ny_(ny), file_(std::make_unique<File>(file, picture_size(nx, ny), low, high, palette)) {}
Movie::~Movie() = default;

void Movie::add_values(std::span<const double> values) { file_->add(values); }
void Movie::close() { file_->close(); }

}  // namespace apps
