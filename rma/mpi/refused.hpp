// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace sluice::mpi_rma {

/// An error of a call: its class (MPI 4.0, 9.4) goes to the window's error handler.
class Refused : public std::runtime_error {
 public:
  Refused(int error_class, const std::string& what) : std::runtime_error(what), error_class_(error_class) {}
  int error_class() const noexcept { return error_class_; }

 private:
  int error_class_;
};

}  // namespace sluice::mpi_rma
