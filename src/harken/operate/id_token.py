"""ID tokens of OpenID Connect: the signature by a published key, and what their claims must say.

The algorithm comes from a list of ours, and the kind of key has to fit it. A token that names none, or a symmetric one
for which a public key would be the secret, is refused before anything of it is believed.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import msgspec

from harken.errors import Forbidden

__all__ = ["ALGORITHMS", "InvalidToken", "UnknownKey", "verify_claims", "verify_signature"]

ALGORITHMS: Mapping[str, str] = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC"}
"""What we accept, and the type of key that it needs."""
LEEWAY_SECONDS = 60.0
LONGEST = 64_000
SHORTEST_RSA_BITS = 2048


class InvalidToken(Forbidden):
    """The identity provider's answer proves nothing."""


class UnknownKey(InvalidToken):
    """The token is signed with a key that was not published when we looked."""


def verify_signature(token: str, keys: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The claims of the token, if one of these keys has signed it. Raises UnknownKey if none of them has its name."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > LONGEST:
        raise InvalidToken("the identity provider sent no ID token that can be read")
    header, claims = (_json(part) for part in parts[:2])
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        raise InvalidToken("the ID token is not signed as we ask for", fix=f"Sign with {', '.join(ALGORITHMS)}")
    if "crit" in header:
        raise InvalidToken("the ID token has extensions that we do not know")
    found = _choose(keys, header.get("kid"), str(algorithm))
    if found is None:
        raise UnknownKey("the ID token is signed with a key that the identity provider does not publish")
    if not _is_signed(str(algorithm), found, f"{parts[0]}.{parts[1]}".encode("ascii"), _bytes(parts[2])):
        raise InvalidToken("the signature of the ID token is wrong")
    return claims


def verify_claims(claims: Mapping[str, Any], *, issuer: str, client_id: str, nonce: str, now: float) -> None:
    """Raise InvalidToken unless these claims are from this issuer, for us, for this login, and for now."""
    if claims.get("iss") != issuer:
        raise InvalidToken("the ID token is of another issuer")
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
    if client_id not in audiences:
        raise InvalidToken("the ID token is for another client")
    if (len(audiences) > 1 or "azp" in claims) and claims.get("azp") != client_id:
        raise InvalidToken("the ID token was made for another client")
    expires, issued = claims.get("exp"), claims.get("iat")
    if not _is_number(expires) or now >= float(expires) + LEEWAY_SECONDS:
        raise InvalidToken("the ID token has expired", fix="Compare the clocks of both machines")
    if not _is_number(issued) or float(issued) > now + LEEWAY_SECONDS:
        raise InvalidToken("the ID token is from the future", fix="Compare the clocks of both machines")
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), nonce.encode()):
        raise InvalidToken("the ID token is not for this login")
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise InvalidToken("the ID token names nobody")


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _choose(keys: Sequence[Mapping[str, Any]], kid: Any, algorithm: str) -> Mapping[str, Any] | None:
    """The key of this name; without a name the only one that fits."""
    fitting = [
        key
        for key in keys
        if key.get("kty") == ALGORITHMS[algorithm]
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (kid is None or key.get("kid") == kid)
    ]
    return fitting[0] if len(fitting) == 1 or (fitting and kid is not None) else None


def _is_signed(algorithm: str, key: Mapping[str, Any], signed: bytes, signature: bytes) -> bool:
    # importing it takes a while, and few log in this way
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        if ALGORITHMS[algorithm] == "EC":
            if key.get("crv") != "P-256" or len(signature) != 64:
                return False
            numbers = ec.EllipticCurvePublicNumbers(_number(key["x"]), _number(key["y"]), ec.SECP256R1())
            r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
            numbers.public_key().verify(encode_dss_signature(r, s), signed, ec.ECDSA(SHA256()))
            return True
        public = rsa.RSAPublicNumbers(_number(key["e"]), _number(key["n"])).public_key()
        if public.key_size < SHORTEST_RSA_BITS:
            return False
        pss = padding.PSS(mgf=padding.MGF1(SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)
        public.verify(signature, signed, pss if algorithm == "PS256" else padding.PKCS1v15(), SHA256())
        return True
    except (InvalidSignature, ValueError, KeyError, TypeError):
        return False


def _number(text: Any) -> int:
    return int.from_bytes(_bytes(str(text)), "big")


def _json(part: str) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(_bytes(part))
    except msgspec.DecodeError:
        found = None
    if not isinstance(found, dict):
        raise InvalidToken("the identity provider sent no ID token that can be read")
    return found


def _bytes(part: str) -> bytes:
    try:
        return urlsafe_b64decode(part.encode("ascii") + b"=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        raise InvalidToken("the identity provider sent no ID token that can be read") from None
