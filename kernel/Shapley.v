(** Proofs of Statements/Shapley.v. *)
From mathcomp Require Import all_ssreflect fingroup perm all_algebra ring.
From LAI.Statements Require Import Networks Shapley.
From LAI Require Import Vectors.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Half of all orders put i before j. *)
Lemma half_of_orders (R : ringType) n (i j : 'I_n) : i != j ->
  2%:R * (\sum_(s : 'S_n) (s i < s j)%N%:R) = n`!%:R :> R.
Proof.
move=> ne; rewrite mulr2n mulrDl mul1r {1}(reindex_inj (mulgI (tperm i j))) -big_split /=.
rewrite (eq_bigr (fun=> 1)) => [|s _].
  by rewrite sumr_const (eq_card (B := [set: 'S_n])) ?cardsT ?card_Sn // => s; rewrite !inE.
rewrite !permM tpermL tpermR -natrD.
have : s i != s j by rewrite (inj_eq perm_inj).
by rewrite -val_eqE /=; case: ltngtP.
Qed.

Section Quadratic.
Variables (R : realFieldType) (p : nat) (H : 'M[R]_p) (b : 'cV[R]_p).
Hypothesis sym : H^T = H.

Lemma quadratic_step x d : quadratic H b x - quadratic H b (x - d) = dot d (H *m x + b) - dot d (H *m d) / 2%:R.
Proof.
rewrite /quadratic mulmxBr !dotBl !dotBr dotDr.
have -> : dot x (H *m d) = dot d (H *m x) by rewrite dotC dot_mull sym.
rewrite (dotC b d).
have algebra (a c e f h : R) : a / 2%:R + c - ((a - e - (e - f)) / 2%:R + (c - h)) = e + h - f / 2%:R by field.
exact: algebra.
Qed.
End Quadratic.

Theorem midpoint : Statements.Shapley.midpoint.
Proof.
move=> R p n H b theta g eta j sym eta0; rewrite /shapley.
have f0 : n`!%:R != 0 :> R by rewrite pnatr_eq0 -lt0n fact_gt0.
set U := fun s : 'S_n => \sum_(i | (s i < s j)%N) g i.
have sumU : 2%:R *: (\sum_s U s) = n`!%:R *: (\sum_i g i - g j).
  rewrite /U; under eq_bigr do rewrite big_mkcond.
  rewrite exchange_big scaler_sumr (bigD1 j) //= [in RHS](bigD1 j) //= [in RHS]addrAC subrr add0r [in RHS]scaler_sumr.
  rewrite big1 ?scaler0 ?add0r => [|s _]; last by rewrite ltnn.
  apply: eq_bigr => i ne; rewrite -(half_of_orders R ne) -scalerA; congr (_ *: _).
  by rewrite scaler_suml; apply: eq_bigr => s _; case: ifP; rewrite ?scale1r ?scale0r.
have each s : quadratic H b (before eta theta g s j) - quadratic H b (before eta theta g s j - eta *: g j)
    = eta * dot (g j) (H *m theta + b) - eta ^+ 2 * dot (g j) (H *m U s) - eta ^+ 2 * dot (g j) (H *m g j) / 2%:R.
  rewrite quadratic_step // /before -/(U s) mulmxBr -!scalemxAr !dotZl !dotDr dotNr !dotZr.
  have algebra (a c e f : R) : eta * (a - eta * c + e) - eta * (eta * f) / 2%:R
      = eta * (a + e) - eta ^+ 2 * c - eta ^+ 2 * f / 2%:R by field.
  exact: algebra.
have orders (a : R) : \sum_(s : 'S_n) a = n`!%:R * a.
  by rewrite sumr_const (eq_card (B := [set: 'S_n])) ?cardsT ?card_Sn ?mulr_natl // => s; rewrite !inE.
have sumH : \sum_s dot (g j) (H *m U s) = n`!%:R / 2%:R * (dot (g j) (H *m \sum_i g i) - dot (g j) (H *m g j)).
  rewrite -dot_sumr -mulmx_sumr; have -> : \sum_s U s = (n`!%:R / 2%:R) *: (\sum_i g i - g j).
    by rewrite mulrC -scalerA -sumU scalerA mulVf ?scale1r // pnatr_eq0.
  by rewrite -scalemxAr dotZr mulmxBr dotBr.
rewrite (eq_bigr _ (fun s _ => each s)) !sumrB !orders -mulr_sumr sumH mulmxBr -scalemxAr !dotDr dotNr dotZr.
have algebra (N a e c f : R) : N != 0 ->
    (N * (eta * (a + e)) - eta ^+ 2 * (N / 2%:R * (c - f)) - N * (eta ^+ 2 * f / 2%:R)) / N / eta
    = a - eta / 2%:R * c + e by move=> N0; field; rewrite N0 eta0.
exact: algebra.
Qed.
