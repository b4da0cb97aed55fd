// SPDX-License-Identifier: Apache-2.0
// Failures: the last one of each thread, and its code.
#include "c/guard.hpp"

#include <new>

namespace sluice::c {
namespace {

/// The last failure of a thread. It keeps the exception, so that a callback can hand it on whole, and needs no memory
/// for its text.
struct Last {
  std::exception_ptr exception;
  const char* text = "";  ///< the exception's own
  sluice_code code = SLUICE_OK;
  Rank peer = -1;
};

Last& last() noexcept {
  thread_local Last of_thread;
  return of_thread;
}

template <Code code, sluice_code c_code>
constexpr bool same = static_cast<int>(code) == static_cast<int>(c_code);
static_assert(same<Code::bad_argument, SLUICE_BAD_ARGUMENT> && same<Code::mismatch, SLUICE_MISMATCH> &&
              same<Code::misuse, SLUICE_MISUSE> && same<Code::timeout, SLUICE_TIMEOUT> &&
              same<Code::peer_lost, SLUICE_PEER_LOST> && same<Code::transport, SLUICE_TRANSPORT> &&
              same<Code::unsupported, SLUICE_UNSUPPORTED> && same<Code::out_of_resources, SLUICE_OUT_OF_RESOURCES> &&
              same<Code::aborted, SLUICE_ABORTED> && same<Code::closed, SLUICE_CLOSED>);

}  // namespace

sluice_code note(std::exception_ptr exception) noexcept {
  Last& noted = last();
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    noted = {nullptr, error.what(), static_cast<sluice_code>(error.code()), error.peer()};
  } catch (const std::bad_alloc&) {
    noted = {nullptr, "out_of_resources: no memory is left", SLUICE_OUT_OF_RESOURCES, -1};
  } catch (const std::exception& error) {  // thrown by a callable that is written in C++
    noted = {nullptr, error.what(), SLUICE_ABORTED, -1};
  } catch (...) {
    noted = {nullptr, "aborted: something was thrown that is no std::exception", SLUICE_ABORTED, -1};
  }
  noted.exception = std::move(exception);
  return noted.code;
}

void forget_last_error() noexcept { last() = {}; }

void refuse(Code code, const std::string& what) { throw Error(code, -1, -1, 0, 0, what); }

void throw_unless_zero(int returned, const char* callback) {
  if (returned == 0) return;
  if (last().exception != nullptr && returned == last().code) std::rethrow_exception(last().exception);
  refuse(Code::aborted, std::string(callback) + " returned " + std::to_string(returned));
}

Timeout limit_of(sluice_timeout timeout) {
  if (timeout < 0)
    refuse(Code::bad_argument, "a timeout of " + std::to_string(timeout) + " ns, where a number from 0 on is needed");
  return Timeout(timeout);
}

std::optional<Timeout> timeout_of(sluice_timeout timeout) {
  static_assert(SLUICE_FOREVER == kForever.count());
  if (timeout == SLUICE_CONTEXT_TIMEOUT) return kContextTimeout;
  return limit_of(timeout);
}

void describe(const char** place, std::string text) {
  thread_local std::string of_thread;
  const char*& pointer = result(place);
  of_thread = std::move(text);
  pointer = of_thread.c_str();
}

}  // namespace sluice::c

using namespace sluice::c;

const char* sluice_code_name(int code) {
  return code == SLUICE_OK ? "ok" : sluice::name(static_cast<sluice::Code>(code));
}

const char* sluice_last_error() { return last().text; }

int sluice_last_error_peer() { return last().peer; }
