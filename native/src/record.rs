//! `efo.model.Record` objects, made without a call of Python for each: this file has the unsafe code.
//!
//! A call with five arguments takes 60 ns, several times as long as what is here. The stable ABI has no vector call for
//! Python 3.11, and no safe way to fill the slots of an object whose class is frozen. So the slots are found once, by the
//! class's own table of members (PEP 384: `Py_tp_members`), and a class that is made otherwise is refused.

use std::ffi::CStr;

use pyo3::exceptions::{PyMemoryError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};

/// The fields of a record, in their order.
const FIELDS: [&CStr; 8] = [
    c"sequence_number",
    c"approximate_arrival_timestamp",
    c"data",
    c"partition_key",
    c"encryption_type",
    c"sub_sequence_number",
    c"explicit_hash_key",
    c"tags",
];
/// The type of a member that is an object, and whose absence is an `AttributeError` (`Py_T_OBJECT_EX`).
const OBJECT_EX: i32 = ffi::Py_T_OBJECT_EX;
/// Flag of a class whose objects the garbage collector follows (`Py_TPFLAGS_HAVE_GC`).
const HAVE_GC: u64 = 1 << 14;

/// The values of a record, in the order of its fields.
pub type Values<'py> = [Bound<'py, PyAny>; 8];

/// The class `Record`, and where its objects have their fields: bytes from the start of an object.
pub struct RecordClass {
    class: Py<PyType>,
    /// Bytes of an object.
    size: usize,
    offsets: [usize; 8],
    /// Of fields that have one.
    zero: Py<PyAny>,
    no_tags: Py<PyAny>,
}

impl RecordClass {
    /// Raises `TypeError` if the objects of the class are not laid out as those of a msgspec struct without GC.
    pub fn new(class: &Bound<'_, PyType>) -> PyResult<Self> {
        let py = class.py();
        let unusual = || PyTypeError::new_err("the class of records is laid out in another way");
        let size: usize = class.getattr("__basicsize__")?.extract()?;
        let is_fixed = class.getattr("__itemsize__")?.extract::<usize>()? == 0;
        let is_followed = class.getattr("__flags__")?.extract::<u64>()? & HAVE_GC != 0;
        let slots = members(class);
        let mut offsets = [0; 8];
        for (offset, field) in offsets.iter_mut().zip(FIELDS) {
            let (_, found) = slots.iter().find(|(name, _)| name == field.to_bytes()).ok_or_else(unusual)?;
            *offset = *found;
        }
        let fits = |offset: &usize| {
            let end = offset.checked_add(size_of::<*mut ffi::PyObject>());
            *offset >= size_of::<ffi::PyObject>() && offset.is_multiple_of(align_of::<usize>()) && end <= Some(size)
        };
        // An object is its header and its fields: nothing of it remains to be filled.
        let is_full = size == size_of::<ffi::PyObject>().saturating_add(size_of_val(&offsets));
        if !is_full || is_followed || !is_fixed || !has_usual_memory(class) || !offsets.iter().all(fits) {
            return Err(unusual());
        }
        let zero = 0_i64.into_pyobject(py)?.into_any().unbind();
        let no_tags = PyTuple::empty(py).into_any().unbind();
        Ok(Self { class: class.clone().unbind(), size, offsets, zero, no_tags })
    }

    /// Returns the values of a Kinesis record: of these five, and the defaults of the others.
    pub fn plain<'py>(&self, py: Python<'py>, values: [Bound<'py, PyAny>; 5]) -> Values<'py> {
        let [number, arrival, data, key, kind] = values;
        let (zero, no_tags) = (self.zero.bind(py).clone(), self.no_tags.bind(py).clone());
        [number, arrival, data, key, kind, zero, py.None().into_bound(py), no_tags]
    }

    /// Makes a record of values that have the types of its fields.
    pub fn make<'py>(&self, py: Python<'py>, values: Values<'py>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: it is memory for an object of the class, allocated as the class does it (`new` has looked), without the
        // zeros that the values replace. At these offsets, `new` has found the slots for objects, which own what is put
        // there. With a header, it is an object, to which nobody else has a reference.
        #[allow(unsafe_code)]
        unsafe {
            let object = ffi::PyObject_Malloc(self.size).cast::<ffi::PyObject>();
            if object.is_null() {
                return Err(PyMemoryError::new_err(()));
            }
            for (offset, value) in self.offsets.into_iter().zip(values) {
                object.byte_add(offset).cast::<*mut ffi::PyObject>().write(value.into_ptr());
            }
            Ok(Bound::from_owned_ptr(py, ffi::PyObject_Init(object, self.class.as_ptr().cast())))
        }
    }

    /// Returns the data of an object, if it is a record of this class itself.
    pub fn data<'a, 'py>(&self, record: Borrowed<'a, 'py, PyAny>) -> Option<Borrowed<'a, 'py, PyBytes>> {
        if record.get_type_ptr().cast() != self.class.as_ptr() {
            return None;
        }
        let [_, _, offset, ..] = self.offsets;
        // SAFETY: at this offset, objects of this class have a slot, which is empty or owns an object. Nobody replaces it
        // while no code of Python runs; who lets some run takes a reference first.
        #[allow(unsafe_code)]
        let data = unsafe {
            let slot = record.as_ptr().byte_add(offset).cast::<*mut ffi::PyObject>();
            Borrowed::from_ptr_or_opt(record.py(), *slot)
        };
        data?.cast().ok()
    }
}

/// Whether objects of a class are in memory of `PyObject_Malloc`, as those of nearly all classes without GC.
fn has_usual_memory(class: &Bound<'_, PyType>) -> bool {
    let slot = |number| {
        // SAFETY: a class has these slots, and their functions are only compared.
        #[allow(unsafe_code)]
        let found = unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), number) };
        found.addr()
    };
    let usual = (ffi::PyType_GenericAlloc as *const (), ffi::PyObject_Free as *const ());
    (slot(ffi::Py_tp_alloc), slot(ffi::Py_tp_free)) == (usual.0.addr(), usual.1.addr())
}

/// Returns the names and offsets of the members of a class that are objects.
fn members(class: &Bound<'_, PyType>) -> Vec<(Vec<u8>, usize)> {
    let mut found = Vec::new();
    // SAFETY: a class that a class statement has made has a table of members, which ends with a nameless one, and it lives
    // as long as the class. That of another class is a null pointer.
    #[allow(unsafe_code)]
    unsafe {
        let mut member = ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_members).cast::<ffi::PyMemberDef>();
        while !member.is_null() && !(*member).name.is_null() {
            if (*member).type_code == OBJECT_EX {
                let offset = usize::try_from((*member).offset).unwrap_or_default();
                found.push((CStr::from_ptr((*member).name).to_bytes().to_vec(), offset));
            }
            member = member.add(1);
        }
    }
    found
}
