(** Sums over all orders of n samples: what comes before one of them. *)
From mathcomp Require Import all_ssreflect fingroup perm all_algebra ring.
From LAI.Statements Require Import Networks.
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

(* A third of them put both i and k before j. *)
Lemma third_of_orders (R : ringType) n (i j k : 'I_n) : i != j -> k != j -> i != k ->
  3%:R * (\sum_(s : 'S_n) ((s i < s j) && (s k < s j))%N%:R) = n`!%:R :> R.
Proof.
move=> ij kj ik; rewrite (_ : 3 = 1 + 1 + 1)%N // !natrD !mulrDl !mul1r.
rewrite {1}(reindex_inj (mulgI (tperm i j))) [X in _ + X](reindex_inj (mulgI (tperm k j))) -!big_split /=.
rewrite (eq_bigr (fun=> 1)) => [|s _].
  by rewrite sumr_const (eq_card (B := [set: 'S_n])) ?cardsT ?card_Sn // => s; rewrite !inE.
have [ji jk ki] : [/\ j != i, j != k & k != i] by split; rewrite eq_sym.
rewrite !permM !tpermL !tpermR (tpermD ik jk) (tpermD ki ji) -!natrD.
have ne : [/\ s i != s j :> nat, s k != s j :> nat & s i != s k :> nat]
  by rewrite !val_eqE !(inj_eq perm_inj).
rewrite (_ : (_ + _ + _)%N = 1%N) //; move: ne => []; case: (ltngtP (s i) (s j)) => //= ab _.
  by case: (ltngtP (s k) (s j)) => //= bc; rewrite ?andbF // (ltn_trans ab bc).
by case: (ltngtP (s k) (s i)) => //= bc; rewrite ?andbF // (ltn_trans ab bc).
Qed.

Lemma sum_orders (R : ringType) n (a : R) : \sum_(s : 'S_n) a = n`!%:R * a.
Proof.
by rewrite sumr_const (eq_card (B := [set: 'S_n])) ?cardsT ?card_Sn ?mulr_natl // => s; rewrite !inE.
Qed.

(* What comes before j, on average over the orders. *)
Lemma sum_before (R : ringType) (V : lmodType R) n (g : 'I_n -> V) j :
  2%:R *: (\sum_(s : 'S_n) \sum_(i | (s i < s j)%N) g i) = n`!%:R *: (\sum_i g i - g j).
Proof.
have -> : \sum_(s : 'S_n) \sum_(i | (s i < s j)%N) g i
  = \sum_(s : 'S_n) \sum_i if (s i < s j)%N then g i else 0.
  by apply: eq_bigr => s _; rewrite big_mkcond.
rewrite exchange_big scaler_sumr (bigD1 j) //= [in RHS](bigD1 j) //= [in RHS]addrAC subrr add0r
  [in RHS]scaler_sumr.
rewrite big1 ?scaler0 ?add0r => [|s _]; last by rewrite ltnn.
apply: eq_bigr => i ne; rewrite -(half_of_orders R ne) -scalerA; congr (_ *: _).
by rewrite scaler_suml; apply: eq_bigr => s _; case: ifP; rewrite ?scale1r ?scale0r.
Qed.

(* Its square. *)
Lemma sum_before_sqr (R : comRingType) p n (g : 'I_n -> 'cV[R]_p) j : let G := \sum_(i | i != j) g i in
  6%:R * (\sum_(s : 'S_n) let U := \sum_(i | (s i < s j)%N) g i in dot U U)
  = n`!%:R * (\sum_(i | i != j) dot (g i) (g i) + 2%:R * dot G G).
Proof.
cbv zeta; pose b (s : 'S_n) i := (s i < s j)%N%:R : R.
have pairs i k : i != j -> k != j -> 6%:R * (\sum_s b s i * b s k) = n`!%:R * ((i == k)%:R + 2%:R).
  move=> ij kj; under eq_bigr do rewrite /b -natrM mulnb.
  have [<-|ik] := eqVneq i k; last by rewrite mulr0n add0r -(third_of_orders R ij kj ik) mulrAC -natrM.
  by rewrite mulr1n; under eq_bigr do rewrite andbb;
    rewrite -(half_of_orders R ij) -(natrD _ 1) mulrAC -natrM.
have whole (s : 'S_n) : \sum_(i | (s i < s j)%N) g i = \sum_(i | i != j) b s i *: g i.
  rewrite [RHS]big_mkcond [LHS]big_mkcond; apply: eq_bigr => i _; rewrite /b.
  by have [->|_] := eqVneq i j; [rewrite ltnn | case: ifP; rewrite ?scale1r ?scale0r].
rewrite (eq_bigr (fun s => \sum_(i | i != j) dot (b s i *: g i) (\sum_(k | k != j) b s k *: g k))) => [|s _];
  last first.
  by rewrite /= whole dot_suml.
rewrite exchange_big mulr_sumr /=.
rewrite dot_suml mulr_sumr -big_split mulr_sumr; apply: eq_bigr => i ij /=.
under eq_bigr do rewrite dotZl dot_sumr mulr_sumr; rewrite exchange_big mulr_sumr /=.
rewrite dot_sumr (_ : dot (g i) (g i) = \sum_(k | k != j) (i == k)%:R * dot (g i) (g k)); last first.
  rewrite (bigD1 i) //= eqxx mul1r big1 ?addr0 // => k /andP [_ ne].
  by rewrite eq_sym (negPf ne) mul0r.
rewrite mulr_sumr -big_split mulr_sumr; apply: eq_bigr => k kj /=.
rewrite -mulrDl mulrA -pairs // -mulrA; congr (_ * _); rewrite mulr_suml; apply: eq_bigr => s _.
by rewrite dotZr mulrA.
Qed.
