//! Numbered enums of the wire: a number that this version does not know is kept, so that a newer peer is not an error.

/// Declares an enum over a wire integer with an `Unknown` variant, conversions both ways and a table of texts for `Display`.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        $name:ident($int:ty) {
            $( $(#[$vmeta:meta])* $variant:ident = $number:literal, $text:literal; )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $( $(#[$vmeta])* $variant, )+
            /// A number that this version does not know.
            Unknown($int),
        }

        impl From<$int> for $name {
            fn from(number: $int) -> Self {
                match number {
                    $( $number => Self::$variant, )+
                    other => Self::Unknown(other),
                }
            }
        }

        impl From<$name> for $int {
            fn from(value: $name) -> Self {
                match value {
                    $( $name::$variant => $number, )+
                    $name::Unknown(other) => other,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $( Self::$variant => f.write_str($text), )+
                    Self::Unknown(number) => write!(f, "unknown code {number}"),
                }
            }
        }
    };
}
pub(crate) use open_enum;
