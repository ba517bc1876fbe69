//! Launch and shim, and nothing else: what `process::guard` tells of.

fn main() {
    process::run_role_if_asked();
    eprintln!("this is a part of watchbell that it starts itself, and nobody else");
    std::process::exit(2);
}
