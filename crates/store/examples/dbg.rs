use store::{file::*, *};
#[tokio::main]
async fn main() {
    let dir = std::path::PathBuf::from("/tmp/dbgstore");
    let _ = std::fs::remove_dir_all(&dir);
    let ls = || {
        let mut v: Vec<_> = std::fs::read_dir(dir.join("log"))
            .unwrap()
            .map(|f| f.unwrap().file_name().into_string().unwrap())
            .collect();
        v.sort();
        println!("{v:?}")
    };
    let sizes = Sizes { segment_bytes: 256 * 1024, layer_bytes: 64 * 1024 };
    for round in 0..6 {
        let s = File::open_or_create(&dir, sizes);
        ls();
        let s = Store::new(s.unwrap());
        if round == 0 {
            for i in 0..2000 {
                s.commit(Commit::new().put(Key::new(format!("k{i}")).unwrap(), vec![1u8; 300]))
                    .await
                    .unwrap();
            }
        }
        drop(s);
        ls();
    }
}
