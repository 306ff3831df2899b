//! Members that go leave sound JSON behind, wherever they stand.
#![allow(clippy::unwrap_used)]

use super::mend::{Mends, block};
use bytes::Bytes;
use serde_json::Value;

#[test]
fn what_is_left_is_the_same_object_without_the_members_that_are_null() {
    let members = [r#""type":"text""#, r#""citations":null"#, r#""caller" : null"#, r#""text":"x""#];
    // Every choice of them in every order.
    for number in 0..4_usize.pow(4) {
        let mut chosen: Vec<&str> = Vec::new();
        for place in 0..4 {
            let member = members.get(number / 4_usize.pow(place) % 4).unwrap();
            if !chosen.contains(member) {
                chosen.push(member);
            }
        }
        let object = Bytes::from(format!("{{ {} }}", chosen.join(" , ")));
        let mut mends = Mends::of(&object);
        block(&mut mends, &object, |_| String::new());
        let done: Value = serde_json::from_slice(&mends.done().concat()).unwrap();
        let mut expected: Value = serde_json::from_slice(&object).unwrap();
        expected.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        assert_eq!(done, expected);
    }
}
