//! Kernels that treat every element alike.

use xlog_core::ScalarType::{F32, U32, U64};
use xlog_driver::{
    KernelDefinition, KernelModule, Parameter,
    host::{HostKernel, KernelBody, KernelCall, KernelFault, MemoryPolicy},
};

use super::length;

static MODULE: KernelModule =
    KernelModule { name: "elementwise", ptx: include_str!("../../kernels/elementwise.ptx") };

/// `out[i] = value`.
pub static FILL_U32: KernelDefinition = KernelDefinition {
    name: "xlog_fill_u32",
    module: &MODULE,
    parameters: &[
        Parameter::output("out", U32).counted_by(2),
        Parameter::value("value", U32),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<Fill>(),
};

struct Fill;

impl KernelBody for Fill {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (value, n) = (call.value::<u32>(1)?, length(call.value(2)?)?);
        call.output::<u32>(0, n)?.fill(value);
        Ok(())
    }
}

/// `out[i] = in[i]`.
pub static COPY_U32: KernelDefinition = KernelDefinition {
    name: "xlog_copy_u32",
    module: &MODULE,
    parameters: &[
        Parameter::input("in", U32).counted_by(2),
        Parameter::output("out", U32).counted_by(2),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<Copy>(),
};

struct Copy;

impl KernelBody for Copy {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let n = length(call.value(2)?)?;
        let output = call.output::<u32>(1, n)?;
        call.input::<u32>(0, n)?.for_each_piece(|start, piece| output.write_from(start, piece));
        Ok(())
    }
}

/// `y[i] = a * x[i] + y[i]`, the product and the sum each rounded once.
pub static AXPY_F32: KernelDefinition = KernelDefinition {
    name: "xlog_axpy_f32",
    module: &MODULE,
    parameters: &[
        Parameter::value("a", F32),
        Parameter::input("x", F32).counted_by(3),
        Parameter::in_out("y", F32).counted_by(3),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<Axpy>(),
};

struct Axpy;

impl KernelBody for Axpy {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (a, n) = (call.value::<f32>(0)?, length(call.value(3)?)?);
        let (y_in, y_out) = (call.input::<f32>(2, n)?, call.output::<f32>(2, n)?);
        let mut y = Vec::new();
        call.input::<f32>(1, n)?.for_each_piece(|start, x| {
            y.resize(x.len(), 0.0);
            y_in.read_into(start, &mut y);
            y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
            y_out.write_from(start, &y);
        });
        Ok(())
    }
}

/// `data[i] += amount`, wrapping.
pub static INCREMENT_U32: KernelDefinition = KernelDefinition {
    name: "xlog_increment_u32",
    module: &MODULE,
    parameters: &[
        Parameter::in_out("data", U32).counted_by(2),
        Parameter::value("amount", U32),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<Increment>(),
};

struct Increment;

impl KernelBody for Increment {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (amount, n) = (call.value::<u32>(1)?, length(call.value(2)?)?);
        let output = call.output::<u32>(0, n)?;
        let mut sums = Vec::new();
        call.input::<u32>(0, n)?.for_each_piece(|start, piece| {
            sums.clear();
            sums.extend(piece.iter().map(|value| value.wrapping_add(amount)));
            output.write_from(start, &sums);
        });
        Ok(())
    }
}

/// `data[i] = mix(data[i] ^ mix(in[i] + salt))`: the result tells in which order such launches
/// ran.
pub static MIX_U32: KernelDefinition = KernelDefinition {
    name: "xlog_mix_u32",
    module: &MODULE,
    parameters: &[
        Parameter::input("in", U32).counted_by(3),
        Parameter::in_out("data", U32).counted_by(3),
        Parameter::value("salt", U32),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<Mix>(),
};

struct Mix;

impl KernelBody for Mix {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (salt, n) = (call.value::<u32>(2)?, length(call.value(3)?)?);
        let (data_in, data_out) = (call.input::<u32>(1, n)?, call.output::<u32>(1, n)?);
        let mut data = Vec::new();
        call.input::<u32>(0, n)?.for_each_piece(|start, input| {
            data.resize(input.len(), 0);
            data_in.read_into(start, &mut data);
            data.iter_mut()
                .zip(input)
                .for_each(|(data, input)| *data = mix_u32(*data, *input, salt));
            data_out.write_from(start, &data);
        });
        Ok(())
    }
}

/// What [`MIX_U32`] makes of one element, for checking results.
#[must_use]
pub fn mix_u32(data: u32, input: u32, salt: u32) -> u32 {
    scramble(data ^ scramble(input.wrapping_add(salt)))
}

/// `out[i] = mix(a[i] ^ mix(b[i] + salt))` and `data[i] = mix(data[i] ^ out[i])`: one launch with
/// every kind of access.
pub static BLEND_U32: KernelDefinition = KernelDefinition {
    name: "xlog_blend_u32",
    module: &MODULE,
    parameters: &[
        Parameter::input("a", U32).counted_by(5),
        Parameter::input("b", U32).counted_by(5),
        Parameter::in_out("data", U32).counted_by(5),
        Parameter::output("out", U32).counted_by(5),
        Parameter::value("salt", U32),
        Parameter::value("n", U64),
    ],
    host: HostKernel::of::<Blend>(),
};

struct Blend;

impl KernelBody for Blend {
    fn run<M: MemoryPolicy>(call: &KernelCall<'_, M>) -> Result<(), KernelFault> {
        let (salt, n) = (call.value::<u32>(4)?, length(call.value(5)?)?);
        let (b, out) = (call.input::<u32>(1, n)?, call.output::<u32>(3, n)?);
        let (data_in, data_out) = (call.input::<u32>(2, n)?, call.output::<u32>(2, n)?);
        let (mut blended, mut data) = (Vec::new(), Vec::new());
        call.input::<u32>(0, n)?.for_each_piece(|start, a| {
            blended.resize(a.len(), 0);
            data.resize(a.len(), 0);
            b.read_into(start, &mut blended);
            data_in.read_into(start, &mut data);
            for ((blended, data), a) in blended.iter_mut().zip(&mut data).zip(a) {
                (*data, *blended) = blend_u32(*a, *blended, *data, salt);
            }
            data_out.write_from(start, &data);
            out.write_from(start, &blended);
        });
        Ok(())
    }
}

/// What [`BLEND_U32`] makes of one element of `data` and of `out`, for checking results.
#[must_use]
pub fn blend_u32(a: u32, b: u32, data: u32, salt: u32) -> (u32, u32) {
    let blended = mix_u32(a, b, salt);
    (scramble(data ^ blended), blended)
}

/// MurmurHash3's 32-bit finalizer: a bijection without visible structure.
fn scramble(mut h: u32) -> u32 {
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}
