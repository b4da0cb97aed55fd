// SPDX-License-Identifier: Apache-2.0
// How a call of C becomes a call of C++: `guarded` turns exceptions into codes, and the functions below it turn
// arguments of C into those of C++, or throw what is wrong with them.
#pragma once

#include <sluice/sluice.h>
#include <sluice/error.hpp>

#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace sluice::c {

/// Keeps an exception as the last error of this thread. @returns its code
sluice_code note(std::exception_ptr exception) noexcept;

/// Runs `call`. No exception leaves it: the exception becomes the last error of this thread.
template <class Call>
sluice_code guarded(const Call& call) noexcept {
  try {
    call();
    return SLUICE_OK;
  } catch (...) {
    return note(std::current_exception());
  }
}

/// Forgets the last error of this thread, so that a callback's own is the only one that `throw_unless_zero` finds.
void forget_last_error() noexcept;

/// Throws unless `returned` is 0: the last error of this thread if `returned` is its code, else one of Code::aborted.
/// @param callback  its name in the error
void throw_unless_zero(int returned, const char* callback);

[[noreturn]] void refuse(Code code, const std::string& what);

/// The object of a handle. @throws Error{Code::misuse} if the handle is NULL
template <class T>
T& at(T* handle, const char* what) {
  if (handle == nullptr) refuse(Code::misuse, std::string("the handle of the ") + what + " is NULL");
  return *handle;
}

/// The place of a result. @throws Error{Code::bad_argument} if it is NULL
template <class T>
T& result(T* place) {
  if (place == nullptr) refuse(Code::bad_argument, "a pointer to a result is NULL");
  return *place;
}

/// Writes a result that the caller may not want.
template <class T>
void give(T* place, T value) noexcept {
  if (place != nullptr) *place = value;
}

/// Makes an object of what `make` returns, and gives its handle to the caller.
template <class T, class Make>
sluice_code create(T** handle, const Make& make) noexcept {
  return guarded([&] {
    T*& place = result(handle);
    place = std::make_unique<T>(make()).release();
  });
}

/// Destroys the object of a handle, if there is one.
template <class T>
sluice_code destroy(T** handle) noexcept {
  return guarded([&] {
    if (handle != nullptr) delete std::exchange(*handle, nullptr);
  });
}

/// @throws Error{Code::bad_argument} for SLUICE_CONTEXT_TIMEOUT and other negative numbers
Timeout limit_of(sluice_timeout timeout);
/// @throws Error{Code::bad_argument} for negative numbers but SLUICE_CONTEXT_TIMEOUT
std::optional<Timeout> timeout_of(sluice_timeout timeout);

/// A text of the caller's; empty for NULL.
inline std::string_view text_of(const char* text) noexcept { return text == nullptr ? std::string_view() : text; }

/// Keeps a description for the caller, until the next one of this thread.
void describe(const char** place, std::string text);

/// An enumeration of C++ whose values are those of C. @throws Error{Code::bad_argument} beyond `last`
template <class Enum>
Enum value_of(int value, Enum last, const char* what) {
  if (value < 0 || value > static_cast<int>(last))
    refuse(Code::bad_argument, std::string("there is no ") + what + " " + std::to_string(value));
  return static_cast<Enum>(value);
}

/// The options of a program that may be older than the library, and have fewer fields: `defaults` has the others.
template <class Options>
Options options_of(const Options* given, Options defaults) {
  // A later field in what is padding now would have no value in an older program.
  static_assert(std::has_unique_object_representations_v<Options>);
  if (given == nullptr) return defaults;
  if (given->size == 0 || given->size > sizeof(Options) || given->size % alignof(Options) != 0)
    refuse(Code::bad_argument, "options of " + std::to_string(given->size) + " bytes: begin them as the macro says, " +
                                   "and use the headers of this library");
  std::memcpy(&defaults, given, given->size);
  return defaults;
}

}  // namespace sluice::c
