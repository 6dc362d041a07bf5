//! The parser as the Python module `efo_native`: efo's `protocol/native.py` calls it, and nobody else should.
//!
//! Values are columns: a list of each field, of which Python makes the records. Each function returns None for what is
//! not the common form; the Python step reads that.

use std::ops::RangeInclusive;

use efo_parser::records::{Base64, Record, Records};
use efo_parser::{aggregate, frame, packed, records};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

/// Sequence numbers, arrival times, data, partition keys, encryption types, and the JSON object without the records.
type Columns<'py> = (
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    Bound<'py, PyBytes>,
);
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
/// Of user records: data, partition keys, and explicit hash keys unless none has one.
type Users<'py> = (Bound<'py, PyList>, Bound<'py, PyList>, Option<Bound<'py, PyList>>);

/// What efo calls: `efo.protocol.native.Step`.
#[pyclass(frozen)]
struct Step {
    base64: Base64,
}

#[pymethods]
impl Step {
    #[new]
    fn new() -> Self {
        Self { base64: Base64::new() }
    }

    /// Returns the records of the frame `data[start:end]`, if its headers are these bytes.
    fn event<'py>(
        &self,
        data: &Bound<'py, PyBytes>,
        start: usize,
        end: usize,
        headers: &[u8],
    ) -> PyResult<Option<Columns<'py>>> {
        let payload = data.as_bytes().get(start..end).and_then(|bytes| frame::payload(bytes, headers));
        payload.map_or(Ok(None), |json| self.columns(data.py(), json))
    }

    /// Returns the records of such a frame as packed columns. None also if one of them may be an aggregate.
    fn packed<'py>(
        &self,
        data: &Bound<'py, PyBytes>,
        start: usize,
        end: usize,
        headers: &[u8],
    ) -> PyResult<Option<Packed<'py>>> {
        let payload = data.as_bytes().get(start..end).and_then(|bytes| frame::payload(bytes, headers));
        payload.map_or(Ok(None), |json| self.pack(data.py(), json))
    }

    /// Returns the records of a page.
    fn page<'py>(&self, body: &Bound<'py, PyBytes>) -> PyResult<Option<Columns<'py>>> {
        self.columns(body.py(), body.as_bytes())
    }

    /// Returns the user records of an aggregate without MAGIC and MD5.
    ///
    /// None also if there are more than `max_users`, or if the hash key of one is outside `range`: two 16-byte numbers.
    #[staticmethod]
    fn aggregate<'py>(
        py: Python<'py>,
        body: &[u8],
        max_users: usize,
        range: Option<([u8; 16], [u8; 16])>,
    ) -> PyResult<Option<Users<'py>>> {
        let Some(found) = aggregate::parse(body, max_users) else { return Ok(None) };
        let range =
            range.map(|(first, last)| RangeInclusive::new(u128::from_be_bytes(first), u128::from_be_bytes(last)));
        if range.is_some_and(|range| !found.is_inside(&range)) {
            return Ok(None);
        }
        let outside = || PyValueError::new_err("an index is outside its table");
        let keys: Vec<_> = found.keys.iter().map(|key| PyString::new(py, key)).collect();
        let keys_of_users: Option<Vec<_>> = found.users.iter().map(|user| keys.get(user.key)).collect();
        let hashes = if found.users.iter().any(|user| user.hash.is_some()) {
            let hash_of = |user: &aggregate::User<'_>| found.hashes.get(user.hash?).copied().flatten();
            Some(PyList::new(py, found.users.iter().map(hash_of))?)
        } else {
            None
        };
        Ok(Some((
            PyList::new(py, found.users.iter().map(|user| PyBytes::new(py, user.data)))?,
            PyList::new(py, keys_of_users.ok_or_else(outside)?)?,
            hashes,
        )))
    }
}

impl Step {
    fn columns<'py>(&self, py: Python<'py>, json: &[u8]) -> PyResult<Option<Columns<'py>>> {
        let Some(Records { before, records, after }) = records::split(json) else { return Ok(None) };
        let Some(data) = self.data(py, &records)? else { return Ok(None) };
        Ok(Some((
            PyList::new(py, records.iter().map(|each| each.sequence_number))?,
            PyList::new(py, records.iter().map(|each| each.arrival))?,
            PyList::new(py, data)?,
            PyList::new(py, records.iter().map(|each| each.partition_key.as_deref()))?,
            PyList::new(py, encryption_types(py, &records))?,
            PyBytes::new(py, &[before, b"[]", after].concat()),
        )))
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

    fn data<'py>(&self, py: Python<'py>, records: &[Record<'_>]) -> PyResult<Option<Vec<Bound<'py, PyBytes>>>> {
        let mut all = Vec::with_capacity(records.len());
        for record in records {
            let Some(length) = Base64::decoded_length(record.data) else { return Ok(None) };
            let mut is_valid = false;
            let data = PyBytes::new_with(py, length, |bytes| {
                is_valid = self.base64.decode(record.data, bytes).is_some();
                Ok(())
            })?;
            if !is_valid {
                return Ok(None);
            }
            all.push(data);
        }
        Ok(Some(all))
    }
}

/// Records of one event have the same encryption type, which is one object then.
fn encryption_types<'py>(py: Python<'py>, records: &[Record<'_>]) -> Vec<Option<Bound<'py, PyString>>> {
    let mut last = None;
    let of = |record: &Record<'_>| {
        let text = record.encryption_type?;
        match &last {
            Some((known, made)) if known == text => Some(Bound::clone(made)),
            _ => {
                let made = PyString::new(py, text);
                last = Some((text.to_owned(), made.clone()));
                Some(made)
            }
        }
    };
    records.iter().map(of).collect()
}

/// The native step of efo: see its module `efo.protocol.native`.
#[pymodule(gil_used = true)]
fn efo_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Step>()
}
