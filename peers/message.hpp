// SPDX-License-Identifier: Apache-2.0
// Messages between ranks outside the data path, and how values are put into packets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "backends/transport.hpp"

namespace sluice::runtime {

/// In each comment, "its" end belongs to the sender of the message, and "your" end to the receiver.
enum class Kind : std::uint8_t {
  greeting,  ///< rank, then the backends open there with their addresses
  opening,   ///< one end of a channel
  closing,   ///< its end `id` is closed; the final epoch
  let_go,    ///< your end `id` may free its memory: the peer accesses none of it any more
  gone,      ///< its end `id` is destroyed, and its memory cannot be written any more
  failure,   ///< its end `id` has failed, and why
  abort,     ///< the sender has called Context::abort; why
  path,      ///< a message of the sender's link for the receiver's
  way,       ///< why the peer cannot reach the target of your end `id`, which was undecided; empty: it can
  refusal,   ///< your end `id`, a target, matches no window; why
  question,  ///< its end waits for your end `id`, and asks how far that has come
  answer     ///< to your end `id`: how far its end has come
};

class Writer {
 public:
  /// @param kind  of the message: a Kind, or a Note of sluice-run
  template <class What>
  requires std::is_enum_v<What>
  explicit Writer(What kind) {
    bytes_.reserve(256);
    put(kind);
  }

  template <class T>
  requires std::is_trivially_copyable_v<T> Writer& put(const T& value) {
    return append(std::as_bytes(std::span(&value, 1)));
  }
  Writer& text(std::string_view text) { return blob(std::as_bytes(std::span(text))); }
  Writer& blob(std::span<const std::byte> blob) { return put(static_cast<std::uint32_t>(blob.size())).append(blob); }

  backends::Blob take() { return std::move(bytes_); }

 private:
  Writer& append(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }

  backends::Blob bytes_;
};

/// Reads values in the order in which they were written. @throws std::runtime_error at the end of the packet.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value;
    std::memcpy(&value, next(sizeof value).data(), sizeof value);
    return value;
  }
  /// Reads a blob as values of T.
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> list() {
    const auto bytes = next(get<std::uint32_t>());
    if (bytes.size() % sizeof(T) != 0) throw std::runtime_error("a list that ends within a value");
    std::vector<T> values(bytes.size() / sizeof(T));
    std::copy_n(bytes.data(), values.size() * sizeof(T), reinterpret_cast<std::byte*>(values.data()));
    return values;
  }
  backends::Blob blob() { return list<std::byte>(); }
  std::string text() {
    const auto bytes = list<char>();
    return {bytes.begin(), bytes.end()};
  }
  bool over() const noexcept { return rest_.empty(); }

 private:
  std::span<const std::byte> next(std::size_t bytes) {
    if (bytes > rest_.size()) throw std::runtime_error("a packet that ends too early");
    const auto taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
  }

  std::span<const std::byte> rest_;
};

}  // namespace sluice::runtime
