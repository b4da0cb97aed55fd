# SPDX-License-Identifier: Apache-2.0
# Writes FILE.cpp, in which sluice::device::FUNCTION() gives the bytes of FILE.
# Run as: cmake -DFILE= -DFUNCTION= -P SluiceEmbed.cmake
cmake_minimum_required(VERSION 3.25)

file(READ "${FILE}" bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
cmake_path(GET FILE FILENAME name)
# A page, as the vendors' own tools align what they embed: loaders map or copy it from there.
file(WRITE "${FILE}.cpp" "// Made from ${name}.
#include <cstddef>
#include <span>

namespace sluice::device {
std::span<const std::byte> ${FUNCTION}() noexcept {
  alignas(4096) static constexpr unsigned char image[] = {${bytes}};
  return std::as_bytes(std::span(image));
}
}
")
