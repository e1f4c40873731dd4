# CUDA GEMM kernels that are emitted when the project is built. From find_package(gemmgen), or:
#
#   include(<checkout>/build/GenKernels.cmake)
#
#   gen_add_kernel(<target> VARIANT rec_tiles [DTYPE f32] [LAYOUT rrr] [NAME gemm_f32] ...)
#   gen_add_bundle(<target> FILE gemm.kernels [NAME gemm] [ARCH sm_80])
#   gen_add_bundle(<target> AUTO SHAPES 4096 1-64x512x512 GPUS a100 h100 [NAME gemm] [EMBED cubin] ...)
#   gen_add_embedded_kernel(<target> VARIANT tiles ARCH sm_80,sm_90 [EMBED cubin,ptx] [NAME f] ...)
#
# gen_add_kernel adds one kernel to a target of the same folder: its .cu, and a folder with its
# header, <name>.h, which C and C++ sources include. The words are the options of `gen emit`:
# SPLIT_K 4 is --split-k 4. Without ARCH, each of the target's CUDA_ARCHITECTURES has its own.
#
# gen_add_bundle adds the kernels that FILE lists (relative to the current source folder), behind
# one function; or with AUTO those that are predicted to be the fastest for SHAPES on GPUS, behind
# the launcher of one kernel; LDA, LDB and UNALIGNED say where A and B lie. Predictions take measured times from the tables that come with gen, or
# from TUNED table.json, and never from those of the user. gen_add_embedded_kernel adds C++ with machine
# code, or with PTX, which needs neither nvcc nor the CUDA toolkit; its ARCH may be several, separated by
# commas. So does gen_add_bundle with AUTO and EMBED.
#
# All is checked at the end of the folder's CMakeLists.txt, when the targets' properties are known,
# and by one process of gen, whose answers are kept until something changes. The files are made when
# the project is built, and again when a template, the generator, a list or a word changes, and those
# with machine code or PTX also when the compiler in them does, NVRTC.

cmake_minimum_required(VERSION 3.24)

if(NOT GEMMGEN_EXECUTABLE)
  find_program(
    GEMMGEN_EXECUTABLE
    NAMES gemmgen gen
    DOC "The command gemmgen, or gen"
    HINTS "${CMAKE_CURRENT_LIST_DIR}/../.venv/bin" REQUIRED)
endif()

function(gen_add_kernel target)
  _gen_check_target(gen_add_kernel "${target}" CUDA)
  _gen_note_call(gen_add_kernel "${target}" ${ARGN})
endfunction()

function(gen_add_bundle target)
  set(language CUDA)
  if(EMBED IN_LIST ARGN)
    set(language CXX)
  endif()
  _gen_check_target(gen_add_bundle "${target}" ${language})
  list(LENGTH ARGN words)
  foreach(word FILE TUNED)
    list(FIND ARGN ${word} at)
    math(EXPR at "${at} + 1")
    if(at GREATER 0 AND at LESS words)
      list(GET ARGN ${at} given)
      # TUNED may be a word.
      if(word STREQUAL FILE OR NOT given MATCHES "^(none|shipped|)$")
        get_filename_component(file "${given}" ABSOLUTE)
        list(REMOVE_AT ARGN ${at})
        list(INSERT ARGN ${at} "${file}")
      endif()
    endif()
  endforeach()
  _gen_note_call(gen_add_bundle "${target}" ${ARGN})
endfunction()

function(gen_add_embedded_kernel target)
  _gen_check_target(gen_add_embedded_kernel "${target}" CXX)
  _gen_note_call(gen_add_embedded_kernel "${target}" ${ARGN})
endfunction()

# Rules are seen by the targets of their own folder alone.
function(_gen_check_target function target language)
  if(NOT TARGET "${target}")
    message(FATAL_ERROR "${function}: there is no target '${target}'; call add_library or "
                        "add_executable before")
  endif()
  get_target_property(original "${target}" ALIASED_TARGET)
  if(original)
    message(FATAL_ERROR "${function}: '${target}' is another name of '${original}'; use that")
  endif()
  get_target_property(type "${target}" TYPE)
  get_target_property(imported "${target}" IMPORTED)
  if(imported OR NOT type MATCHES "^(EXECUTABLE|(STATIC|SHARED|MODULE|OBJECT)_LIBRARY)$")
    message(FATAL_ERROR "${function}: '${target}' compiles nothing; use a library of another kind, "
                        "or an executable")
  endif()
  get_target_property(folder "${target}" SOURCE_DIR)
  if(NOT folder STREQUAL CMAKE_CURRENT_SOURCE_DIR)
    message(FATAL_ERROR "${function}: the target '${target}' is made in ${folder}; call "
                        "${function} there")
  endif()
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT language IN_LIST languages)
    message(FATAL_ERROR "${function} needs the language ${language}: "
                        "project(<name> LANGUAGES ... ${language})")
  endif()
endfunction()

# Keeps a call, with its fields separated by tabs, for the end of the folder's CMakeLists.txt.
function(_gen_note_call function target)
  get_property(calls DIRECTORY PROPERTY GEMMGEN_CALLS)
  if(NOT calls)
    cmake_language(DEFER CALL _gen_add_all)
  endif()
  list(JOIN ARGV "\t" call)
  set_property(DIRECTORY APPEND PROPERTY GEMMGEN_CALLS "${call}")

  # install(TARGETS) reads what to install when it is called, but what that is at the end.
  get_target_property(headers ${target} GEMMGEN_HEADERS)
  get_target_property(type ${target} TYPE)
  if(NOT headers AND type MATCHES "_LIBRARY$")
    set_property(TARGET ${target} PROPERTY GEMMGEN_HEADERS "")
    set_property(TARGET ${target} APPEND PROPERTY PUBLIC_HEADER
                                                  "$<TARGET_PROPERTY:${target},GEMMGEN_HEADERS>")
  endif()
endfunction()

# Adds to the targets of this folder what was asked for.
function(_gen_add_all)
  get_property(calls DIRECTORY PROPERTY GEMMGEN_CALLS)
  _gen_digest(digest)
  set(asked "")
  set(targets)
  set(lists "")
  foreach(call IN LISTS calls)
    string(REPLACE "\t" ";" words "${call}")
    list(GET words 1 target)
    list(APPEND targets ${target})
    _gen_architectures(architectures ${target})
    string(APPEND asked "${architectures}\t${call}\n")
    if(call MATCHES "^gen_add_bundle\t.*\t(FILE|TUNED)\t(/[^\t]+)")
      set(list "${CMAKE_MATCH_2}")
      if(EXISTS "${list}")
        _gen_files_of(files digests "${list}")
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${list}" ${files})
        string(APPEND lists "${digests}")
      endif()
    endif()
  endforeach()
  _gen_ask(answers "${asked}" "${digest}${lists}")

  foreach(target answer IN ZIP_LISTS targets answers)
    string(REPLACE "\t" ";" answer "${answer}")
    _gen_emit(${target} "${digest}" ${answer})
  endforeach()
  list(REMOVE_DUPLICATES targets)
  foreach(target IN LISTS targets)
    _gen_remove_others(${target})
  endforeach()
endfunction()

# The files of a list or a table, which may be a folder of tables, and their digests.
function(_gen_files_of result digests path)
  set(files "${path}")
  if(IS_DIRECTORY "${path}")
    file(GLOB_RECURSE files CONFIGURE_DEPENDS "${path}/*.json")
  endif()
  set(all "")
  foreach(file IN LISTS files)
    file(SHA256 "${file}" one)
    string(APPEND all " ${file} ${one}")
  endforeach()
  set(${result} "${files}" PARENT_SCOPE)
  set(${digests} "${all}" PARENT_SCOPE)
endfunction()

# What `gen cmake` answers, line by line, fields separated by tabs; kept beside what was asked.
function(_gen_ask result asked digest)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/gemmgen")
  set(key "${GEMMGEN_EXECUTABLE} ${digest}\n${asked}")
  set(known "")
  if(EXISTS "${folder}/answers" AND EXISTS "${folder}/asked")
    file(READ "${folder}/asked" known)
  endif()
  if(NOT known STREQUAL key)
    file(WRITE "${folder}/calls" "${asked}")
    execute_process(
      COMMAND "${GEMMGEN_EXECUTABLE}" cmake "${folder}/calls"
      RESULT_VARIABLE status
      OUTPUT_VARIABLE answers
      ERROR_VARIABLE error
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
    if(NOT status EQUAL 0)
      string(REGEX REPLACE "^error: " "" error "${error}")
      message(FATAL_ERROR "${error}")
    endif()
    file(WRITE "${folder}/answers" "${answers}")
    file(WRITE "${folder}/asked" "${key}")
  endif()
  file(STRINGS "${folder}/answers" answers ENCODING UTF-8)
  set(${result} ${answers} PARENT_SCOPE)
endfunction()

# Asks gen which folders all emitted files depend on, and where NVRTC is: at every run of cmake, as
# pip writes the same command for another version, or another checkout. `reason`: why
# GEMMGEN_EXECUTABLE cannot say.
function(_gen_find_sources reason)
  set(${reason} "" PARENT_SCOPE)
  get_property(known GLOBAL PROPERTY GEMMGEN_SOURCES)
  if(known)
    return()
  endif()
  if(NOT EXISTS "${GEMMGEN_EXECUTABLE}" OR IS_DIRECTORY "${GEMMGEN_EXECUTABLE}")
    set(${reason} "there is no program '${GEMMGEN_EXECUTABLE}'; set GEMMGEN_EXECUTABLE" PARENT_SCOPE)
    return()
  endif()
  execute_process(
    COMMAND "${GEMMGEN_EXECUTABLE}" cmake
    RESULT_VARIABLE status
    OUTPUT_VARIABLE folders
    ERROR_VARIABLE error
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
  string(REGEX REPLACE "\n.*\n" "\n" error "${error}")
  if(NOT status EQUAL 0 OR NOT folders MATCHES "/gen\n/")
    # The name is short enough for another program to have it.
    set(${reason} "${GEMMGEN_EXECUTABLE} is not gemmgen's, is older than these CMake files, or does \
not run; set GEMMGEN_EXECUTABLE. ${error}" PARENT_SCOPE)
    return()
  endif()
  string(REPLACE "\n" ";" folders "${folders}")
  set_property(GLOBAL PROPERTY GEMMGEN_SOURCES "${folders}")
endfunction()

# What all emitted files depend on: the generator and its templates, whatever their times are.
function(_gen_digest result)
  get_property(digest GLOBAL PROPERTY GEMMGEN_DIGEST)
  if(NOT digest)
    _gen_find_sources(reason)
    if(reason)
      message(FATAL_ERROR "${reason}")
    endif()
    get_property(sources GLOBAL PROPERTY GEMMGEN_SOURCES)
    list(GET sources 0 package)
    list(GET sources 1 templates)
    file(GLOB_RECURSE files LIST_DIRECTORIES FALSE "${package}/*.py" "${package}/*.json"
         "${templates}/*.j2")
    set(digests "")
    foreach(file IN LISTS files)
      file(SHA256 "${file}" one)
      string(APPEND digests "${file} ${one}\n")
    endforeach()
    string(SHA256 digest "${digests}")
    set_property(GLOBAL PROPERTY GEMMGEN_DIGEST "${digest}")

    # Files that replace others may be older than these; their folders are not, nor is the command
    # that pip writes.
    file(GLOB folders "${templates}" "${templates}/*" "${package}/dispatch/tuned"
         "${package}/dispatch/tuned/*" "${package}/../gemmgen*.dist-info/RECORD")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${GEMMGEN_EXECUTABLE}"
                                                                   ${folders} ${files})
  endif()
  set(${result} "${digest}" PARENT_SCOPE)
endfunction()

# What tells one NVRTC from another: no content, as the library is large.
function(_gen_nvrtc_digest result)
  get_property(sources GLOBAL PROPERTY GEMMGEN_SOURCES)
  list(GET sources 2 library)
  if(NOT EXISTS "${library}")
    set(${result} "" PARENT_SCOPE)
    return()
  endif()
  file(SIZE "${library}" size)
  file(TIMESTAMP "${library}" time "%s" UTC)
  get_filename_component(folder "${library}" DIRECTORY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${folder}" "${library}")
  set(${result} "${library} ${size} ${time}" PARENT_SCOPE)
endfunction()

# What the target is compiled for, separated by commas.
function(_gen_architectures result target)
  get_target_property(architectures ${target} CUDA_ARCHITECTURES)
  set(known)
  foreach(architecture IN LISTS architectures)
    if(architecture STREQUAL "native")
      list(APPEND known ${CMAKE_CUDA_ARCHITECTURES_NATIVE})
    elseif(architecture STREQUAL "all")
      list(APPEND known ${CMAKE_CUDA_ARCHITECTURES_ALL})
    elseif(architecture STREQUAL "all-major")
      list(APPEND known ${CMAKE_CUDA_ARCHITECTURES_ALL_MAJOR})
    else()
      list(APPEND known ${architecture})
    endif()
  endforeach()
  list(JOIN known "," known)
  set(${result} "${known}" PARENT_SCOPE)
endfunction()

# Adds to the target what `gen emit` makes with these options.
function(_gen_emit target digest name stamp source header)
  _gen_check_name(${target} ${name} ${stamp})
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/gemmgen/${target}")
  set(lists)
  foreach(word --bundle --tuned)
    list(FIND ARGN ${word} at)
    if(NOT at EQUAL -1)
      math(EXPR at "${at} + 1")
      list(GET ARGN ${at} file)
      if(IS_ABSOLUTE "${file}") # and no word
        _gen_files_of(files digests "${file}")
        list(APPEND lists ${files})
        string(APPEND digest "${digests}")
      endif()
    endif()
  endforeach()
  if(source MATCHES "\\.cpp$")
    _gen_nvrtc_digest(nvrtc)
    string(APPEND digest "${nvrtc}")
  endif()
  # Makefiles do not notice that a command has changed; they notice files. Who removes this one has
  # it made again.
  set(words "${folder}/${name}.options")
  file(CONFIGURE OUTPUT "${words}" CONTENT "${GEMMGEN_EXECUTABLE}\n${ARGN}\n${digest}\n" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${words}")
  add_custom_command(
    OUTPUT "${folder}/${source}" "${folder}/${header}"
    COMMAND "${GEMMGEN_EXECUTABLE}" emit ${ARGN} -o "${folder}/" --depfile "${folder}/${name}.d"
    DEPENDS "${words}" ${lists}
    DEPFILE "${folder}/${name}.d"
    COMMENT "Emitting ${name}"
    VERBATIM)
  # A project's clang-tidy is for what its people write; from CMake 3.27 on.
  set_property(SOURCE "${folder}/${source}" PROPERTY SKIP_LINTING ON)
  set_property(TARGET ${target} APPEND PROPERTY GEMMGEN_NAMES ${name})
  set_property(TARGET ${target} APPEND PROPERTY GEMMGEN_HEADERS "${folder}/${header}")

  set(installed include) # where install(TARGETS) has public headers by default
  if(CMAKE_INSTALL_INCLUDEDIR)
    set(installed "${CMAKE_INSTALL_INCLUDEDIR}")
  endif()
  target_include_directories(${target} PUBLIC "$<BUILD_INTERFACE:${folder}>"
                                              "$<INSTALL_INTERFACE:${installed}>")
  if(source MATCHES "\\.cu$")
    _gen_add_cuda(${target} ${name} "${folder}/${source}" "${folder}/${header}")
  else()
    target_sources(${target} PRIVATE "${folder}/${source}" "${folder}/${header}")
    target_compile_features(${target} PRIVATE cxx_std_17)
    # For dlopen. Not by target_link_libraries, whose two forms do not mix in one target.
    set_property(TARGET ${target} APPEND PROPERTY LINK_LIBRARIES ${CMAKE_DL_LIBS})
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${CMAKE_DL_LIBS})
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    target_compile_definitions(${target} PRIVATE GEMMGEN_EXPORTS)
  endif()
endfunction()

# Where several targets have functions of one name, the linker takes any of them.
function(_gen_check_name target name stamp)
  get_property(known GLOBAL PROPERTY GEMMGEN_KERNEL_${name})
  set(own "${stamp};${target}")
  if(known)
    list(GET known 1 other)
    if(target STREQUAL other)
      message(FATAL_ERROR "the target '${target}' has two kernels of the name ${name}; use NAME")
    elseif(NOT known MATCHES "^${stamp};")
      message(FATAL_ERROR "the kernel ${name} of the target '${target}' is another one than "
                          "${name} of '${other}'; give one of them another NAME, or both the same "
                          "words and CUDA_ARCHITECTURES")
    endif()
  endif()
  set_property(GLOBAL PROPERTY GEMMGEN_KERNEL_${name} "${own}")
endfunction()

function(_gen_add_cuda target name source header)
  get_target_property(separable ${target} CUDA_SEPARABLE_COMPILATION)
  get_target_property(type ${target} TYPE)
  if(separable AND NOT type STREQUAL "OBJECT_LIBRARY")
    # A kernel needs no device code of other files. Without -rdc two libraries of a program may have
    # the same one.
    set(objects ${target}_${name})
    add_library(${objects} OBJECT "${source}" "${header}")
    foreach(property IN ITEMS CUDA_ARCHITECTURES CUDA_EXTENSIONS CUDA_RUNTIME_LIBRARY
                              CUDA_VISIBILITY_PRESET VISIBILITY_INLINES_HIDDEN)
      get_target_property(value ${target} ${property})
      if(NOT value MATCHES "-NOTFOUND$")
        set_property(TARGET ${objects} PROPERTY ${property} "${value}")
      endif()
    endforeach()
    get_target_property(independent ${target} POSITION_INDEPENDENT_CODE)
    if(type MATCHES "SHARED|MODULE" OR independent)
      set_property(TARGET ${objects} PROPERTY POSITION_INDEPENDENT_CODE ON)
    endif()
    set_property(TARGET ${objects} PROPERTY CUDA_SEPARABLE_COMPILATION OFF)
    target_compile_definitions(${objects}
                               PRIVATE "$<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>")
    target_compile_options(${objects} PRIVATE "$<TARGET_PROPERTY:${target},COMPILE_OPTIONS>")
    target_compile_features(${objects} PRIVATE cuda_std_17)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}> "${header}")
    add_dependencies(${target} ${objects})
  else()
    target_sources(${target} PRIVATE "${source}" "${header}")
  endif()
  target_compile_features(${target} PRIVATE cuda_std_17)
  # The header includes cuda_runtime_api.h; nvcc finds it by itself, C and C++ compilers do not.
  target_include_directories(${target} SYSTEM
                             PUBLIC "${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}")
endfunction()

# Removes files of calls that are there no more: nobody is to include an old header.
function(_gen_remove_others target)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/gemmgen/${target}")
  get_target_property(names ${target} GEMMGEN_NAMES)
  file(GLOB files LIST_DIRECTORIES FALSE "${folder}/*")
  foreach(file IN LISTS files)
    get_filename_component(name "${file}" NAME_WE)
    if(NOT name IN_LIST names)
      file(REMOVE "${file}")
    endif()
  endforeach()
endfunction()
