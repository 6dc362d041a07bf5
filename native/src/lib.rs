//! The parser as the Python module `efo_native`: efo's `protocol/native.py` calls it, and nobody else should.
//!
//! Each function returns None for what is not the common form; the Python step reads that.

mod lanes;
mod record;

use std::ops::RangeInclusive;
use std::sync::Mutex;

use efo_parser::packed::MAGIC;
use efo_parser::records::{Base64, Record, Records};
use efo_parser::{aggregate, data, frame, packed, records};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyList, PyString, PyTuple, PyType};

use crate::record::RecordClass;

/// The MD5 that an aggregate ends with.
const MD5: usize = 16;
/// A longer frame is joined in memory that is freed afterwards.
const MAX_KEPT: usize = 1024 * 1024;

/// Records, and the JSON object without them.
type Read<'py> = (Bound<'py, PyTuple>, Bound<'py, PyBytes>);
/// Sequence numbers and their widths, arrival times, data and their widths, partition keys, their widths and which exist,
/// the encryption type, and the JSON object without the records. Widths are native integers of 32 bits.
type Packed<'py> = (
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Option<Bound<'py, PyString>>,
    Bound<'py, PyBytes>,
);
/// Of each stream its id, the bytes of its content, and that in chunks; how many bytes remain; whether the limit was reached.
type Split<'py> = (Vec<(u32, usize, Bound<'py, PyList>)>, usize, bool);
/// What efo calls: `efo.protocol.native.Step`.
#[pyclass(frozen)]
struct Step {
    base64: Base64,
    record: RecordClass,
    /// Where the frame of an event is joined: memory that is new each time costs a page fault for each 4 KiB.
    joined: Mutex<Vec<u8>>,
}

#[pymethods]
impl Step {
    /// `record`: the class of records. Raises `TypeError` if it is made in another way than this step knows.
    #[new]
    fn new(record: &Bound<'_, PyType>) -> PyResult<Self> {
        Ok(Self { base64: Base64::new(), record: RecordClass::new(record)?, joined: Mutex::default() })
    }

    /// Returns the content of the frames of `bytes` from `start` on, the first of which began with `partial`.
    ///
    /// At most of `max_frames`, in chunks of `max_joined` bytes. None unless all are DATA of streams in `known`, with nothing
    /// unusual.
    #[staticmethod]
    fn split_data<'py>(
        bytes: &Bound<'py, PyBytes>,
        start: usize,
        partial: &[u8],
        known: &Bound<'py, PyAny>,
        max_joined: usize,
        max_frames: usize,
    ) -> PyResult<Option<Split<'py>>> {
        let py = bytes.py();
        let limits = data::Limits { joined: max_joined, frames: max_frames };
        let rest = bytes.as_bytes().get(start..).unwrap_or_default();
        let found = data::split(partial, rest, limits, |id| known.contains(id).unwrap_or(false));
        let Some(found) = found else { return Ok(None) };
        let mut streams = Vec::with_capacity(found.streams.len());
        for stream in &found.streams {
            let chunks = PyList::empty(py);
            for chunk in &stream.chunks {
                let write = |bytes: &mut [u8]| {
                    chunk.write(bytes);
                    Ok(())
                };
                chunks.append(PyBytes::new_with(py, chunk.length, write)?)?;
            }
            streams.push((stream.id, stream.length, chunks));
        }
        Ok(Some((streams, found.rest.len(), found.is_limited)))
    }

    /// Returns the records of the frame of `length` bytes at `start` in `first` and `later`, if its headers are these bytes.
    fn event<'py>(
        &self,
        first: &Bound<'py, PyAny>,
        later: &Bound<'py, PyList>,
        start: usize,
        length: usize,
        headers: &[u8],
    ) -> PyResult<Option<Read<'py>>> {
        let read = |frame: &[u8]| frame::payload(frame, headers).map_or(Ok(None), |json| self.read(first.py(), json));
        self.frame(first, later, start, length, read).unwrap_or(Ok(None))
    }

    /// Returns the records of such a frame as packed columns. None also if one of them may be an aggregate.
    fn packed<'py>(
        &self,
        first: &Bound<'py, PyAny>,
        later: &Bound<'py, PyList>,
        start: usize,
        length: usize,
        headers: &[u8],
    ) -> PyResult<Option<Packed<'py>>> {
        let read = |frame: &[u8]| frame::payload(frame, headers).map_or(Ok(None), |json| self.pack(first.py(), json));
        self.frame(first, later, start, length, read).unwrap_or(Ok(None))
    }

    /// Returns the records of a page.
    fn page<'py>(&self, body: &Bound<'py, PyBytes>) -> PyResult<Option<Read<'py>>> {
        self.read(body.py(), body.as_bytes())
    }

    /// Returns how many bytes of data the records have. None if one of them may be an aggregate.
    fn plain_size(&self, records: &Bound<'_, PyTuple>) -> Option<usize> {
        let sizes = records.iter_borrowed().map(|record| {
            let data = self.record.data(record)?;
            let data = data.as_bytes();
            (!data.starts_with(MAGIC)).then_some(data.len())
        });
        sizes.sum()
    }

    /// Returns the user records of each of some records: None for what is no intact aggregate of the common form.
    ///
    /// None also if there are more than `max_users`, or if the hash key of one is outside `range`: two 16-byte numbers.
    /// It ends before the record with which all would be more than `max_users`.
    fn aggregates<'py>(
        &self,
        records: &Bound<'py, PyTuple>,
        max_users: usize,
        range: Option<([u8; 16], [u8; 16])>,
    ) -> PyResult<Bound<'py, PyList>> {
        let range =
            range.map(|(first, last)| RangeInclusive::new(u128::from_be_bytes(first), u128::from_be_bytes(last)));
        // Owned: while user records are made, a garbage collection may run anything.
        let data = records.iter_borrowed().map(|record| self.record.data(record).map(Borrowed::to_owned));
        let data: Vec<_> = data.collect();
        let bodies: Vec<_> = data.iter().map(|data| body(data.as_ref()?.as_bytes())).collect();
        let hashed: Vec<_> = bodies.iter().flatten().map(|(body, _)| *body).collect();
        let mut digests = lanes::digests_of(&hashed).into_iter();
        let mut users = Vec::with_capacity(bodies.len());
        let mut left = max_users;
        for (record, found) in records.iter().zip(&bodies) {
            let intact = found.filter(|(_, expected)| digests.next().is_some_and(|digest| digest == *expected));
            let parsed = intact.and_then(|(body, _)| aggregate::parse(body, max_users));
            let is_kept = |found: &aggregate::Aggregate<'_>| {
                range.as_ref().is_none_or(|range| found.is_inside(range, lanes::digests_of))
            };
            let Some(kept) = parsed.filter(is_kept) else {
                users.push(None);
                continue;
            };
            let Some(rest) = left.checked_sub(kept.users.len()) else { break };
            left = rest;
            users.push(Some(self.users(&record, &kept)?));
        }
        PyList::new(records.py(), users)
    }
}

/// Splits an aggregate into what its MD5 is of, and its MD5. None if it does not begin as one, or has nothing in it.
fn body(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = data.strip_prefix(MAGIC)?;
    rest.split_at_checked(rest.len().checked_sub(MD5)?).filter(|(body, _)| !body.is_empty())
}

impl Step {
    /// Calls `read` with the `length` bytes from `start` in `first` and `later`. None if they are not there, or no `bytes`.
    fn frame<T>(
        &self,
        first: &Bound<'_, PyAny>,
        later: &Bound<'_, PyList>,
        start: usize,
        length: usize,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        let first = first.cast::<PyBytes>().ok()?.as_bytes().get(start..)?;
        if let Some(frame) = first.get(..length) {
            return Some(read(frame));
        }
        // Taken, not locked: while records are made, a garbage collection may run anything.
        let mut joined = self.joined.lock().map(|mut kept| std::mem::take(&mut *kept)).unwrap_or_default();
        joined.clear();
        joined.extend_from_slice(first);
        for chunk in later {
            let chunk = chunk.cast_into::<PyBytes>().ok()?;
            let missing = length.saturating_sub(joined.len());
            joined.extend_from_slice(chunk.as_bytes().get(..missing).unwrap_or_else(|| chunk.as_bytes()));
        }
        let result = (joined.len() == length).then(|| read(&joined));
        if joined.capacity() <= MAX_KEPT
            && let Ok(mut kept) = self.joined.lock()
        {
            *kept = joined;
        }
        result
    }

    fn users<'py>(&self, outer: &Bound<'py, PyAny>, found: &aggregate::Aggregate<'_>) -> PyResult<Bound<'py, PyTuple>> {
        let py = outer.py();
        let number = outer.getattr(intern!(py, "sequence_number"))?;
        let arrival = outer.getattr(intern!(py, "approximate_arrival_timestamp"))?;
        let kind = outer.getattr(intern!(py, "encryption_type"))?;
        let keys: Vec<_> = found.keys.iter().map(|key| PyString::new(py, key).into_any()).collect();
        let outside = || PyValueError::new_err("an index is outside its table");
        let mut made = Vec::with_capacity(found.users.len());
        for (index, user) in found.users.iter().enumerate() {
            let key = keys.get(user.key).ok_or_else(outside)?;
            let data = PyBytes::new(py, user.data).into_any();
            let [number, arrival, data, key, kind, _, none, no_tags] =
                self.record.plain(py, [number.clone(), arrival.clone(), data, key.clone(), kind.clone()]);
            let hash = user.hash.and_then(|at| found.hashes.get(at).copied().flatten());
            let hash = hash.map_or(none, |hash| PyString::new(py, hash).into_any());
            let index = index.into_pyobject(py)?.into_any();
            made.push(self.record.make(py, [number, arrival, data, key, kind, index, hash, no_tags])?);
        }
        PyTuple::new(py, made)
    }

    fn read<'py>(&self, py: Python<'py>, json: &[u8]) -> PyResult<Option<Read<'py>>> {
        let Some(Records { before, records, after }) = records::split(json) else { return Ok(None) };
        let none = py.None().into_bound(py);
        let mut made = Vec::with_capacity(records.len());
        // Of records that follow each other, these values are often the same: one object then.
        let mut arrival = (f64::NAN, none.clone());
        let mut kind = (None, none.clone());
        for record in &records {
            let Some(data) = self.data(py, record)? else { return Ok(None) };
            if record.arrival.to_bits() != arrival.0.to_bits() {
                arrival = (record.arrival, PyFloat::new(py, record.arrival).into_any());
            }
            if record.encryption_type != kind.0 {
                let text = record.encryption_type.map(|text| PyString::new(py, text).into_any());
                kind = (record.encryption_type, text.unwrap_or_else(|| none.clone()));
            }
            let number = PyString::from_bytes(py, record.sequence_number)?.into_any();
            let key = record.partition_key.as_deref().map(|key| PyString::from_bytes(py, key)).transpose()?;
            let key = key.map_or_else(|| none.clone(), Bound::into_any);
            let values = self.record.plain(py, [number, arrival.1.clone(), data, key, kind.1.clone()]);
            made.push(self.record.make(py, values)?);
        }
        Ok(Some((PyTuple::new(py, made)?, PyBytes::new(py, &[before, b"[]", after].concat()))))
    }

    fn pack<'py>(&self, py: Python<'py>, json: &[u8]) -> PyResult<Option<Packed<'py>>> {
        let Some(Records { before, records, after }) = records::split(json) else { return Ok(None) };
        let Some(columns) = packed::pack(&records) else { return Ok(None) };
        let mut is_valid = false;
        let data = PyBytes::new_with(py, columns.data_length, |bytes| {
            is_valid = packed::unpack_data(&self.base64, &records, bytes).is_some();
            Ok(())
        })?;
        if !is_valid {
            return Ok(None);
        }
        let widths =
            |widths: &[i32]| PyBytes::new(py, &widths.iter().flat_map(|each| each.to_ne_bytes()).collect::<Vec<_>>());
        let arrivals: Vec<_> = columns.arrivals.iter().flat_map(|each| each.to_ne_bytes()).collect();
        Ok(Some((
            PyBytes::new(py, &columns.numbers),
            widths(&columns.number_widths),
            PyBytes::new(py, &arrivals),
            data,
            widths(&columns.data_widths),
            PyBytes::new(py, &columns.keys),
            widths(&columns.key_widths),
            PyBytes::new(py, &columns.has_key),
            columns.encryption_type.map(|kind| PyString::new(py, kind)),
            PyBytes::new(py, &[before, b"[]", after].concat()),
        )))
    }

    fn data<'py>(&self, py: Python<'py>, record: &Record<'_>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(length) = Base64::decoded_length(record.data) else { return Ok(None) };
        let mut is_valid = false;
        let data = PyBytes::new_with(py, length, |bytes| {
            is_valid = self.base64.decode(record.data, bytes).is_some();
            Ok(())
        })?;
        Ok(is_valid.then(|| data.into_any()))
    }
}

/// The native step of efo: see its module `efo.protocol.native`.
#[pymodule(gil_used = true)]
fn efo_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Step>()
}
