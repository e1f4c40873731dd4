# find_package(gemmgen): finds the command `gemmgen` and brings the functions of GenKernels.cmake.
#
#   cmake -S . -B build -Dgemmgen_DIR=$(gen --cmake-dir)
#
# GEMMGEN_EXECUTABLE  the command; the one of the same installation if it is not set

if(CMAKE_VERSION VERSION_LESS 3.24)
  set(gemmgen_FOUND FALSE)
  set(gemmgen_NOT_FOUND_MESSAGE "gemmgen needs CMake 3.24 or newer, not ${CMAKE_VERSION}")
  return()
endif()

# In bin/ of the environment whose lib/python3.x/site-packages/gen/cmake this is, in bin/ beside
# the package (pip install --target), in .venv/ of a checkout; else on the PATH.
find_program(
  GEMMGEN_EXECUTABLE
  NAMES gemmgen gen
  DOC "The command gemmgen, or gen"
  HINTS
    "${CMAKE_CURRENT_LIST_DIR}/../../../../../bin"
    "${CMAKE_CURRENT_LIST_DIR}/../../bin"
    "${CMAKE_CURRENT_LIST_DIR}/../.venv/bin")

if(NOT GEMMGEN_EXECUTABLE)
  set(gemmgen_FOUND FALSE)
  set(gemmgen_NOT_FOUND_MESSAGE
      "the command gemmgen is missing; install gemmgen, from its checkout or wheel, or set GEMMGEN_EXECUTABLE")
  return()
endif()

include("${CMAKE_CURRENT_LIST_DIR}/GenKernels.cmake")
_gen_find_sources(gemmgen_NOT_FOUND_MESSAGE)
if(gemmgen_NOT_FOUND_MESSAGE)
  set(gemmgen_FOUND FALSE)
endif()
