// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/error.hpp>

#include <string>

namespace sluice::tests {

/// The name of the code of the error that `call` throws; "nothing".
template <class Call>
std::string code_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return name(error.code());
  }
  return "nothing";
}

}  // namespace sluice::tests
